import io

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from zenith_ae import noise_levels


def noise(shape):
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize("what", ["noise", "weak noise", "dots", "enlarged noise", "photograph"])
def test_where_pixels_differ_nothing_is_taken_for_plain_colours(plan, what):
    rng, picture = np.random.default_rng(0), plan
    if what in ("noise", "weak noise"):
        picture = picture * 0.8 + 20 + rng.standard_normal(picture.shape) * (10 if what == "noise" else 1)
    elif what == "dots":
        picture = np.where(rng.random((*picture.shape[:2], 1)) < 0.02, rng.integers(0, 2) * 255, picture)
    elif what == "enlarged noise":
        picture = noise((60, 80, 3)).repeat(2, axis=0).repeat(2, axis=1)
    else:
        picture = noise((120, 160, 3)) // 8 + np.linspace(0, 200, 160)[:, None]
    picture = np.asarray(picture).astype(np.uint8)
    assert not noise_levels.drawn_cells(picture).any()


def test_a_noisy_photograph_beside_a_drawing_keeps_its_level(plan):
    page = np.tile(plan, (3, 4, 1))
    page[:, 320:] = noise((360, 320, 3))
    drawn = noise_levels.drawn_cells(page)
    assert drawn[:, :30].all() and not drawn[:, 42:].any()
    colour = noise_levels._one_number(page), noise_levels._one_number(page * np.uint16(257))
    alike = (page[1:] == page[:-1]).all(axis=2)
    assert all(np.array_equal(code[1:] == code[:-1], alike) for code in colour)


@pytest.fixture
def page():
    """Light text with soft edges on a dark page, small enough for its stops to be dots."""
    picture = Image.new("RGB", (480, 320), (30, 30, 34))
    pen = ImageDraw.Draw(picture)
    words = "A quick. brown; fox: jumps... over 3.14 lazy dogs, i.e. none. " * 2
    for y in range(4, 310, 15):
        pen.text((6, y), words, (230, 230, 225), ImageFont.load_default(10))
    return np.asarray(picture)


def test_text_with_soft_edges_is_drawn(page):
    assert noise_levels.drawn_cells(page).all()
    assert noise_levels.drawn_cells(page * np.uint16(257)).all()
    assert noise_levels.drawn_cells(page[:315, :475]).all()
    grey = np.repeat(page[..., :1], 3, axis=2)
    assert noise_levels.drawn_cells(grey).all()


@pytest.mark.parametrize("share", [0.001, 0.01, 0.05])
def test_wrong_pixels_on_a_page_of_text_are_not(page, share):
    random = np.random.default_rng(0)
    wrong = random.random(page.shape[:2]) < share
    dotted = np.where(wrong[..., None], random.choice([0, 255], (*page.shape[:2], 1)), page).astype(np.uint8)
    assert not noise_levels.drawn_cells(dotted).any()


@pytest.mark.parametrize("level", [1, 2, 10])
@pytest.mark.parametrize("channels", [1, 3])
def test_noise_beside_a_plain_frame_is_not(level, channels):
    random = np.random.default_rng(0)
    picture = np.full((320, 480, 3), 90, np.uint8)
    noisy = 120 + level * random.standard_normal((160, 240, channels))
    picture[80:240, 120:360] = np.clip(np.rint(noisy), 0, 255)
    drawn = noise_levels.drawn_cells(picture)
    assert not drawn[12:28, 17:43].any()  # of faint grey noise what is next to the frame may be
    assert channels == 1 or not drawn[10:30, 15:45].any()


def test_faint_noise_that_a_camera_made_smooth_is_not():
    random = np.random.default_rng(0)
    steps = np.repeat(np.repeat(random.integers(0, 3, (40, 60, 3)), 8, 0), 8, 1)  # flat blocks, as of a JPEG
    fine = random.integers(-1, 2, (320, 480, 3)) * (random.random((320, 480, 1)) < 0.2)
    flat = np.repeat(np.repeat(random.random((40, 60, 1)) < 0.4, 8, 0), 8, 1)
    picture = np.uint8(100 + steps + fine * ~flat)
    alike = (picture[1:-1, 1:-1] == picture[1:-1, 2:]).all(axis=2) & (
        picture[1:-1, 1:-1] == picture[2:, 1:-1]
    ).all(axis=2)
    assert 0.2 < alike.mean() < 0.6
    assert not noise_levels.drawn_cells(picture).any()


def test_levels_that_differ_no_more_than_estimates_of_one_do_are_made_one():
    def evened(spread, level=20.0):
        """A map of two levels whose logarithms are as far as asked from those of its median."""
        found = np.full((4, 6), level, np.float32)
        found[:, :2] *= np.exp(-2 * spread)
        found[:, 4:] *= np.exp(spread)
        before = found.copy()
        noise_levels.make_even(found, np.zeros(found.shape, bool))
        return before, found

    before, after = evened(0.04)
    assert np.ptp(before) > 1 and (after == 20).all()
    before, after = evened(0.065)  # half-way: half of the logarithm is left
    assert np.log(after / 20) == pytest.approx(np.log(before / 20) / 2, abs=1e-5)
    for unchanged in (evened(0.1), evened(0.04, level=0.9), evened(0.04, level=0.0)):
        assert np.array_equal(*unchanged)
    for other in (0, 10, 40):  # a small part of another level, down to none
        level = np.full((10, 10), 20, np.float32)
        level[::2] *= 1.02
        level[0, :2] = other
        noise_levels.make_even(level, np.zeros(level.shape, bool))
        assert (level[0, :2] == other).all()
        assert np.ptp(level[1:]) < 0.1


def test_clipped_places_are_as_noisy_as_the_others_where_those_agree():
    level = np.full((10, 10), 20, np.float32)
    level[::2] *= 1.02
    clipped = np.zeros((10, 10), bool)
    clipped[:8] = True
    level[:4], level[4, 0], level[9, 9] = 12, 40, 12  # too low where clipped, higher once, lower elsewhere
    noise_levels.make_even(level, clipped)
    assert np.ptp(level[:4]) == 0 and level[0, 0] == np.median(level)
    assert level[4, 0] == 40 and level[9, 9] == 12
    few = np.full((10, 10), 12, np.float32)
    few[0, :4] = 20
    before, clipped = few.copy(), np.ones((10, 10), bool)
    clipped[0, :4] = False  # too few to tell
    noise_levels.make_even(few, clipped)
    assert np.array_equal(few, before)
    uneven = np.geomspace(2, 60, 100, dtype=np.float32).reshape(10, 10)
    before = uneven.copy()
    noise_levels.make_even(uneven, np.arange(100).reshape(10, 10) < 30)
    assert np.array_equal(uneven, before)


def test_texture_is_not_taken_for_noise_where_the_picture_is_calm_elsewhere():
    level = np.full((10, 10), 3, np.float32)
    level[:2], level[2:4, :5], level[9], level[8, 0] = 0.1, 10, 12, 30
    clipped = np.zeros((10, 10), bool)
    limit = 1.4 * 3 + 0.5
    plain = np.zeros((80, 80, 3), np.uint8)
    found = noise_levels.without_texture(plain, level, clipped)
    assert (found[:2] == np.float32(0.1)).all() and (found[4:8] == 3).all()  # not less than there is
    assert found[2:4, :5] == pytest.approx(limit)
    assert found[9] == pytest.approx((limit + 12) / 2) and found[8, 0] == 30  # loud noise is noise
    assert (level[2:4, :5] == 10).all()
    clipped[4:9] = clipped[2:4, 5:] = True  # where noise is missing, it is not calm
    assert noise_levels.without_texture(plain, level, clipped)[2, 0] == 10
    for nothing in (np.zeros((3, 3), np.float32), np.full((3, 3), 0.4, np.float32)):
        assert np.array_equal(noise_levels.without_texture(plain, nothing, np.zeros((3, 3), bool)), nothing)


def test_what_is_rough_nearly_everywhere_is_not_taken_for_noise_either():
    rng, clipped = np.random.default_rng(0), np.zeros((16, 16), bool)
    picture = np.rint(128 + rng.normal(0, 20, (128, 128, 3)))
    picture[:, 80:] = np.rint(128 + rng.normal(0, 1, (128, 48, 3)))
    picture[112:] = 128
    picture = picture.astype(np.uint8)
    level = np.full((16, 16), 9, np.float32)
    calm = noise_levels.calm_places(picture, level > 0).level
    assert calm == pytest.approx(1, abs=0.15)  # of the calm part, and not of the plain one
    found = noise_levels.without_texture(picture, level, clipped)
    assert found == pytest.approx(3.5 * calm + 1.5)
    level[15] = 0.2
    assert (noise_levels.without_texture(picture, level, clipped)[15] == np.float32(0.2)).all()
    assert noise_levels.without_texture(picture, np.full_like(level, 11.5), clipped) == pytest.approx(
        (3.5 * calm + 1.5 + 11.5) / 2
    )
    for told in (np.full_like(level, 13), np.full_like(level, 3)):  # louder than texture; as calm
        assert np.array_equal(noise_levels.without_texture(picture, told, clipped), told)
    clipped[:, 10:] = True  # what is clipped says nothing, and the rest is loud
    assert (noise_levels.without_texture(picture, np.full_like(level, 9), clipped) == 9).all()
    assert noise_levels.calm_places(picture, ~clipped & (np.arange(16) < 4)[:, None]).level > 15
    assert noise_levels.calm_places(picture, np.arange(256).reshape(16, 16) < 64) is not None
    assert noise_levels.calm_places(picture, np.arange(256).reshape(16, 16) < 16) is None  # too few


def test_what_is_as_rough_as_white_noise_and_not_gaussian_is_texture():
    rng, clipped = np.random.default_rng(0), np.zeros((16, 16), bool)
    for grains, expected in ((rng.laplace(0, 8, (128, 128, 1)), 2), (rng.normal(0, 11, (128, 128, 1)), 7)):
        picture = np.clip(128 + grains * [1, 0.9, 0.8], 0, 255).astype(np.uint8)
        calm, level = noise_levels.calm_places(picture), np.full((16, 16), 7, np.float32)
        assert calm.level > 7 and (calm.kurtosis > 3.8) == (expected == 2)
        assert (noise_levels.without_texture(picture, level, clipped) == expected).all()
        loud = np.full((16, 16), 14, np.float32)
        assert (noise_levels.without_texture(picture, loud, clipped) == loud).all()


def test_loud_noise_in_a_part_of_a_calm_picture_is_noise():
    picture = np.full((128, 128, 3), 128.0)
    picture += np.random.default_rng(0).normal(0, 1, picture.shape)
    picture[64:, 64:] += np.random.default_rng(1).normal(0, 30, (64, 64, 3))
    level = np.full((16, 16), 1, np.float32)
    level[8:, 8:] = 30
    nothing = np.zeros((16, 16), bool)
    found = noise_levels.without_texture(picture.astype(np.uint8), level, nothing)
    assert np.array_equal(found, level) and level.mean() < 10
    level[8:, 8:] = 16  # as fine texture may be taken for
    found = noise_levels.without_texture(picture.astype(np.uint8), level, nothing)
    assert (found[8:, 8:] < 8).all()


def test_what_is_hidden_says_nothing_of_the_noise():
    level, clipped = np.full((5, 6), 4, np.float32), np.zeros((5, 6), bool)
    level[2:, 3:], level[0, 0] = 60, 5
    alpha = np.full((37, 43), 255, np.uint8)
    alpha[16:, 24:] = 0
    alpha[20, 30] = 1  # hardly to be seen, and yet
    noise_levels.even_out_hidden(alpha, level, clipped)
    assert level[2, 3] == 60 and not clipped[2, 3] and level[0, 0] == 5 and not clipped[:2].any()
    level[2, 3] = 4
    assert (level[2:, 3:] == 4).all() and clipped[2:, 3:].sum() == 8
    for same in (np.zeros_like(alpha), np.ones_like(alpha)):
        before = level.copy()
        noise_levels.even_out_hidden(same, level, untold := np.zeros((5, 6), bool))
        assert np.array_equal(level, before) and not untold.any()


@pytest.mark.parametrize("grey", [False, True])
@pytest.mark.parametrize("sigma", [6, 15, 40])
def test_white_noise_is_measured_beside_texture(sigma, grey):
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:160, :203]
    texture = 40 * np.sin(x / 1.7) * np.cos(y / 2.1) * (x > 90)
    clean = (110 + 20 * np.sin(x / 40) + texture)[..., None] * np.array([1, 1, 1] if grey else [1, 0.9, 1.1])
    noise = sigma * rng.normal(size=(*clean.shape[:2], 1 if grey else 3))
    noisy = clean + noise
    found = noise_levels.white_noise(np.float32(noisy / 255), 1.2 * sigma)
    assert found == pytest.approx(sigma, rel=0.04)
    if sigma < 40:  # of which much would be clipped
        stored = np.clip(np.rint(noisy), 0, 255)
        assert noise_levels.white_noise(stored.astype(np.uint8), 1.2 * sigma) == pytest.approx(
            found, rel=0.03
        )
        deep = (stored * 257).astype(np.uint16)
        assert noise_levels.white_noise(deep, 1.2 * sigma) == pytest.approx(found, rel=0.03)


def test_white_noise_is_measured_where_there_is_no_texture_as_white_as_it():
    rng = np.random.default_rng(0)
    noisy = 128 + 10 * rng.normal(size=(200, 200, 3))
    noisy[:, 60:] += 25 * rng.normal(size=(200, 140, 3))
    assert noise_levels.white_noise(np.float32(noisy / 255), 12) == pytest.approx(10, rel=0.05)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_noise_that_grows_with_the_brightness_is_measured(dtype):
    rng, brightness = np.random.default_rng(0), np.linspace(40, 200, 250)
    deviation = np.sqrt(brightness)
    noisy = (brightness + rng.normal(0, 1, (180, 250)) * deviation)[..., None].repeat(3, axis=2)
    unit = np.iinfo(dtype).max if dtype != np.float32 else 1
    picture = (noisy * (unit / 255)).astype(dtype)
    cells = deviation[4::8][None].repeat(23, axis=0)
    cells = np.pad(cells, [(0, 0), (0, 32 - cells.shape[1])], mode="edge")
    for told in (0.7 * cells, 0.3 * cells + 2, np.full_like(cells, 8)):
        level = told.astype(np.float32)
        noise_levels.bring_to_measured(picture, level)
        assert level == pytest.approx(cells, rel=0.25)
        assert level.mean() == pytest.approx(cells.mean(), rel=0.08)
    told = (1.3 * cells).astype(np.float32)  # what is more already stays
    level = told.copy()
    noise_levels.bring_to_measured(picture, level)
    assert level == pytest.approx(told)


def test_texture_of_what_is_bright_is_no_noise_of_photons():
    rng = np.random.default_rng(0)
    surface = np.linspace(40, 200, 250) + np.zeros((180, 1))
    surface[:, 170:] += rng.normal(0, 25, (180, 80))
    grey = np.clip(surface + rng.normal(0, 6, surface.shape), 0, 255).astype(np.uint8)
    level = np.full((23, 32), 6, np.float32)
    level[:, ::2] = 7.5  # not the same everywhere
    told = level.copy()
    noise_levels.bring_to_measured(grey[..., None].repeat(3, axis=2), level)
    assert level == pytest.approx(told, abs=0.5)


@pytest.mark.parametrize("grey", [False, True])
@pytest.mark.parametrize("sigma", [40, 60, 100])
def test_loud_white_noise_is_measured_although_much_of_it_is_clipped(sigma, grey):
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:160, :203]
    clean = np.clip(1.5 * x - 20, 0, 255) + 30 * np.sin(x / 1.7) * np.cos(y / 2.1) * (y > 90)
    noise = rng.normal(0, sigma, (*clean.shape, 1 if grey else 3)) + np.zeros(3)
    stored = np.clip(np.rint(clean[..., None] + noise), 0, 255).astype(np.uint8)
    assert np.mean((stored == 0) | (stored == 255)) > 0.15
    for about in (0.6 * sigma, sigma, 1.2 * sigma):
        assert noise_levels.white_noise(stored, about) == pytest.approx(sigma, rel=0.06)
    said = rng.uniform(0.5, 0.9, (20, 26)).astype(np.float32) * np.float32(sigma)
    level = said.copy()
    noise_levels.bring_to_measured(stored, level)
    assert level == pytest.approx(np.full_like(level, sigma), rel=0.06)
    level = np.where(np.arange(26) < 13, said, 0)  # as of a picture that is half of a screenshot
    before = level.copy()
    noise_levels.bring_to_measured(stored, level)
    assert np.array_equal(level, before)


def test_a_level_too_high_for_grey_is_what_is_measured_if_noise_is_white_and_gaussian():
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:200, :240]
    clean = 120 + 30 * np.sin(x / 1.7) * np.cos(y / 2.1) * (x > 60)
    white = rng.normal(size=clean.shape)
    soft = white + 0.25 * np.roll(white, 1, axis=1) + 0.25 * np.roll(white, 1, axis=0)
    said = rng.uniform(14, 16, (25, 30)).astype(np.float32)

    def level(noise, channels):
        picture = (clean + 10 * noise / noise.std())[..., None].repeat(3, axis=2)
        picture[..., 1] += channels  # which are not all one, if this is no zero
        found = said.copy()
        noise_levels.bring_to_measured(np.clip(np.rint(picture), 0, 255).astype(np.uint8), found)
        return found

    assert level(white, 0) == pytest.approx(np.full_like(said, 10), rel=0.06)
    for noise in (soft, rng.laplace(size=clean.shape)):
        assert level(noise, 0) == pytest.approx(said, rel=0.15)
    assert level(white, 5) == pytest.approx(said, rel=0.15)


def test_too_few_or_clipped_patches_tell_no_white_noise():
    noisy = np.clip(128 + 20 * np.random.default_rng(0).normal(size=(64, 64, 3)), 0, 255).astype(np.uint8)
    for about in (20, 50):  # of the latter no mean is three times as much away from both ends
        assert noise_levels.white_noise(noisy, about) == pytest.approx(20, rel=0.05)
    for few in (noisy[:4], noisy[:, :1], noisy[:30, :30]):
        assert noise_levels.white_noise(few, 20) is None
    large = np.clip(128 + 20 * np.random.default_rng(0).normal(size=(200, 200, 3)), 0, 255)
    assert noise_levels.white_noise(large.astype(np.uint8), 20) == pytest.approx(20, rel=0.05)
    large[:, 27:] += 110  # too near to white; the rest, of which there are 1,274 patches, is an eighth
    assert noise_levels.white_noise(np.clip(large, 0, 255).astype(np.uint8), 20) is None


def shared_noise(correlation, sigma, shape=(160, 224, 3)):
    """White noise of which any two channels have the same correlation."""
    mixed = np.linalg.cholesky(np.full((3, 3), correlation) + (1 - correlation) * np.eye(3))
    return np.random.default_rng(0).normal(0, sigma, shape) @ mixed.T


@pytest.mark.parametrize("sigma", [12, 20, 50])
def test_noise_that_channels_have_in_common_is_known(sigma):
    y, x = np.mgrid[:160, :224]
    surface = (120 + 40 * np.sin(x / 30) + 20 * np.cos(y / 50))[..., None] * [1, 0.9, 0.7]
    for correlation, expected in ((-0.4, False), (0, False), (0.05, False), (0.3, True), (0.9, True)):
        noisy = np.clip(surface + shared_noise(correlation, sigma), 0, 255)
        pictures = [noisy.astype(np.uint8), (noisy * 257).astype(np.uint16), (noisy / 255).astype(np.float32)]
        assert [noise_levels.is_shared(picture) for picture in pictures] == 3 * [expected]


def test_texture_is_no_noise_that_channels_have_in_common():
    """It is alike in all of them, and in places as fine."""
    texture = np.random.default_rng(1).normal(0, 30, (160, 224, 1))
    texture[40:120, 60:160] *= 0.1
    for sigma in (5, 20):
        assert not noise_levels.is_shared(
            np.clip(128 + texture + shared_noise(0, sigma), 0, 255).astype(np.uint8)
        )
    assert noise_levels.is_shared(np.clip(128 + texture + shared_noise(0.5, 20), 0, 255).astype(np.uint8))


def test_of_few_or_clipped_pixels_nothing_is_said_of_their_channels():
    noisy = np.clip(128 + shared_noise(0.9, 20), 1, 254).astype(np.uint8)
    assert noise_levels.is_shared(noisy[:16, :18])
    for few in (noisy[:15], noisy[:, :17], noisy[:1, :1], np.zeros_like(noisy), np.full_like(noisy, 255)):
        assert not noise_levels.is_shared(few)
    clipped = np.where(shared_noise(0.9, 20) > 0, 255, 0).astype(np.uint8)
    clipped[:, :112] = np.clip(128 + shared_noise(0, 20), 1, 254)[:, :112]
    assert not noise_levels.is_shared(clipped)  # the other half tells
    wide = np.tile(noisy[:16], (1, 90, 1))
    assert wide.shape[1] > noise_levels._MOST_COLUMNS and noise_levels.is_shared(wide)


def test_noise_that_grows_with_brightness_is_not_taken_for_its_least():
    light = np.linspace(40, 200, 256)[:, None]
    level = light / 10
    noise = np.random.default_rng(0).normal(size=(256, 256, 3))
    found = noise_levels.white_noise(np.uint8(light + level * noise + 0.5), float(level.mean()))
    assert level.mean() < found < level.max()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_clipped_cells_are_those_with_values_at_either_end(dtype):
    peak = np.iinfo(dtype).max if dtype != np.float32 else 1
    picture = np.full((37, 43, 3), peak / 2).astype(dtype)
    picture[:8, :8] = 0
    picture[8:16, 8:16:2, 1] = peak  # a sixth
    picture[16:24, 16] = peak  # an eighth, of which every other column is looked at
    picture[36, 40:] = peak
    if dtype == np.float32:
        picture[:8, 24:32], picture[8:16, 24:32] = 1.5, -0.5
    found = noise_levels.clipped_cells(picture)
    expected = np.zeros((16, 16), bool)
    expected[0, 0] = expected[1, 1] = expected[2, 2] = expected[4, 5] = True
    assert np.array_equal(found[:4, :5], expected[:4, :5]) and found[4, 5]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("shape", [(96, 128), (600, 50)])
def test_noise_of_the_calmest_places_is_measured(dtype, shape):
    y, x = np.mgrid[: shape[0], : shape[1]]
    surface = 100 + 40 * np.sin(y / 60) + 30 * np.cos(x / 50)
    noisy = surface[..., None] + np.random.default_rng(0).normal(0, 3, (*shape, 3))
    noisy[: shape[0] // 2] += 60 * (x[: shape[0] // 2, :, None] % 2)  # texture, in half of the picture
    unit = np.iinfo(dtype).max if dtype != np.float32 else 1
    noisy = (noisy * (unit / 255)).astype(dtype)
    assert noise_levels.calm_places(noisy).level == pytest.approx(
        2.9, abs=0.25
    )  # a tenth part is a little less
    noisy[-shape[0] // 4 :] = noisy[-1, -1]  # a frame says nothing
    assert noise_levels.calm_places(noisy).level == 0
    wide = np.random.default_rng(0).normal(0, 3 * unit / 255, (32, 20_000, 3)) + unit / 2
    assert noise_levels.calm_places(wide.astype(dtype)).level == pytest.approx(2.9, abs=0.25)
    assert (
        noise_levels.calm_places(noisy[:31]) is noise_levels.calm_places(noisy[:, :33]) is None
    )  # too small


def test_estimated_map_is_bilinear_between_the_centres_of_its_blocks():
    """Against torch.nn.functional.interpolate, which training uses."""
    torch = pytest.importorskip("torch")
    coarse = noise((2, 3, 5)).astype(np.float32) / 255
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(coarse)[:, None], scale_factor=8, mode="bilinear", align_corners=False
    )[:, 0, :21, :37]
    assert np.allclose(noise_levels.enlarged(coarse, 21, 37), expected.numpy(), atol=1e-6)


@pytest.mark.parametrize("count", [1, 256, 257, 24000])
def test_no_product_of_patches_wakes_the_threads_of_a_blas(count):
    """OpenBLAS takes several from 2^18 multiplications on."""
    patches = noise((count, 25))
    parts = noise_levels._in_parts(patches)
    assert np.array_equal(np.concatenate(parts), patches)
    assert all(25 * 25 * len(part) < 2**18 for part in parts)


def staves(rng):
    """(256, 256, 3) lines of 2 pixels every 6 rows, and some across, in grey on paper."""
    page = np.full((256, 256), 200.0)
    page[::6] = page[1::6] = 60
    for x in rng.integers(0, 256, 24):
        page[:, x] = 60
    return np.repeat(page[..., None], 3, axis=2)


def test_gaussian_noise_is_found_whole_where_strokes_hide_it():
    rng = np.random.default_rng(0)
    noisy = np.uint8(np.clip(staves(rng) + rng.normal(0, 8, (256, 256, 3)), 0, 255) + 0.5)
    level = np.full((32, 32), 3, np.float32)
    noise_levels.bring_to_measured(noisy, level)
    assert level.mean() == pytest.approx(8, rel=0.1)


def test_edges_between_plain_colours_are_no_noise():
    """As letters, which leave no place without an edge, but many without a difference."""
    rng = np.random.default_rng(0)
    crisp = np.repeat(rng.integers(0, 256, (256, 64, 3), dtype=np.uint8), 4, axis=1)
    level = np.full((32, 32), 0.05, np.float32)
    noise_levels.bring_to_measured(crisp, level)
    assert (level == np.float32(0.05)).all()
    soft = np.uint8(
        crisp * 0.8 + rng.normal(20, 2, crisp.shape).clip(0, 40)
    )  # there is noise too: a little more
    noise_levels.bring_to_measured(soft, level)
    assert level.mean() == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32])
def test_a_channel_that_alone_shows_anything(dtype):
    picture = np.zeros((20, 30, 3), dtype)
    assert noise_levels.only_channel(picture) is None
    picture[..., 2] = 1
    assert noise_levels.only_channel(picture) is None
    picture[::2, :, 1] = 1
    assert noise_levels.only_channel(picture) == 1
    picture[5, 5, 2] = 0  # where few pixels do not tell
    assert noise_levels.only_channel(picture) is None
    picture[:, ::2, 0] = 1
    assert noise_levels.only_channel(picture) is None


def textured(sigma=0.0):
    """(200, 280, 3) of grains of several sizes, with white noise."""
    rng = np.random.default_rng(2)
    grains = [rng.normal(0, 2.0**k, (200 // 2**k + 1, 280 // 2**k + 1, 1)) for k in range(1, 6)]
    texture = sum(
        g.repeat(2**k, axis=0).repeat(2**k, axis=1)[:200, :280] for k, g in enumerate(grains, start=1)
    )
    colour = 128 + texture * [1, 0.9, 0.7] + rng.normal(0, 1, (200, 280, 3)) * max(sigma, 1)
    return Image.fromarray(np.clip(colour, 0, 255).astype(np.uint8))


def as_jpeg(image, **options):
    stream = io.BytesIO()
    image.save(stream, "JPEG", **options)
    return Image.open(stream)


@pytest.mark.parametrize("grey", [False, True])
@pytest.mark.parametrize("quality", [15, 30, 50, 75, 85, 90])
def test_the_step_of_a_jpeg_is_that_of_its_tables(quality, grey):
    for sigma in (0, 20):
        image = as_jpeg(textured(sigma).convert("L" if grey else "RGB"), quality=quality)
        steps = [image.quantization[0][8 * v + h] for v, h in noise_levels._LOW]
        picture = np.asarray(image.convert("RGB"))
        assert noise_levels.jpeg_step(picture) == pytest.approx(np.median(steps), abs=1, rel=0.15)
        cropped = noise_levels.jpeg_step(picture[3:, 2:])
        assert cropped == pytest.approx(np.median(steps), abs=1, rel=0.15) or (quality, cropped) == (90, 0)
        step = noise_levels.jpeg_step(picture)
        assert noise_levels.jpeg_step(picture.astype(np.uint16) * np.uint16(257)) == step
        assert noise_levels.jpeg_step(picture / np.float32(255)) == step
        assert noise_levels.jpeg_step(np.minimum(picture / np.float32(255) + np.float32(1e-4), 1)) == 0
        halved = Image.fromarray(picture).resize((140, 100))
        assert noise_levels.jpeg_step(np.asarray(halved)) == 0


def test_the_blocks_of_a_cropped_jpeg_are_found_where_they_begin():
    picture = np.asarray(as_jpeg(textured(), quality=60))
    for y, x in ((0, 0), (1, 7), (4, 4), (5, 2)):
        begin = (-y % 8, -x % 8)
        for turned in (
            picture[y:, x:],
            (picture[y:, x:] / np.float32(255)),
            picture[y:, x:, :1].repeat(3, 2),
        ):
            assert noise_levels._first_block(turned) == begin
    for without in (noise((64, 96, 3)), np.full((40, 40, 3), 9, np.uint8)):
        assert noise_levels._first_block(without[2:]) == (0, 0)
    again = np.asarray(as_jpeg(Image.fromarray(picture[3:, 5:]), quality=92))
    assert noise_levels.jpeg_step(again) == pytest.approx(noise_levels.jpeg_step(picture), abs=1)


@pytest.mark.parametrize(
    "shape", [(200, 280, 3), (200, 7, 3), (8, 8, 3), (16, 16, 3), (1, 1, 3), (2, 40, 3), (11, 3, 3)]
)
def test_what_was_no_jpeg_has_no_step(shape):
    for picture in (np.asarray(textured()), noise(shape), np.full(shape, 77, np.uint8)):
        picture = picture[: shape[0], : shape[1]]
        assert noise_levels.jpeg_step(picture) == 0
        level = np.full((2, 2), 0.25, np.float32)
        noise_levels.raise_to_jpeg(picture, level)
        assert (level == 0.25).all()


def test_the_tiles_of_a_game_are_no_jpeg():
    rng = np.random.default_rng(0)
    tiles = rng.choice([8, 70, 150, 240], (12, 8, 8))
    chosen = rng.integers(0, 12, (18, 20))
    picture = tiles[chosen].transpose(0, 2, 1, 3).reshape(144, 160)[..., None].repeat(3, axis=2)
    assert noise_levels.jpeg_step(picture.astype(np.uint8)) == 0


def test_what_is_not_a_number_has_no_step():
    picture = np.random.default_rng(0).normal(0.5, 0.1, (64, 64, 3)).astype(np.float32)
    picture[3, 3] = np.nan
    assert noise_levels.jpeg_step(picture) == 0


def test_levels_are_at_least_what_jpeg_did():
    picture = np.asarray(as_jpeg(textured(), quality=50))
    level = np.array([[0, 9]], np.float32)
    noise_levels.raise_to_jpeg(picture, level)
    assert 1 < level[0, 0] < 2 and level[0, 1] == 9


def test_channels_of_small_pictures_are_looked_at_where_they_are_calm():
    texture = np.random.default_rng(1).normal(0, 30, (64, 66, 1))
    texture[:32, :34] *= 0.05
    picture = np.clip(128 + texture + shared_noise(0, 20, (64, 66, 3)), 0, 255).astype(np.uint8)
    assert not noise_levels.is_shared(picture)
