"""Drawn pictures for training: text, interfaces, line art, gradients, plain colours, bitmaps, print, maps.

People decode these with autoencoders as well as photographs, and photographs hold too few of
their sharp edges, flat areas and thin strokes for a network to learn them. Everything is drawn
with Pillow and its built-in font; picture i of a seed is always the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont, ImageOps

#: Names of drawn pictures begin so.
PREFIX = "drawn/"
SIZE = 384, 512  # height, width
SMALL = 128, 128
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_SIGNS = ".,:;!?()-+=/%&@#$*'\""
# Rough letter frequencies: most letters of a page are the small ones.
_WEIGHTS = np.array([8] * 26 + [1] * 26 + [1] * 10 + [0.3] * len(_SIGNS))
_WEIGHTS /= _WEIGHTS.sum()

Colour = tuple[int, int, int]
Rng = np.random.Generator


def draw(index: int, seed: int = 0) -> np.ndarray:
    """Drawn picture ``index``, uint8 (384, 512, 3); the kinds take turns."""
    rng = np.random.default_rng((seed, index))
    return np.asarray(KINDS[index % len(KINDS)](rng))


def draw_small(index: int, seed: int = 0) -> np.ndarray:
    """Small drawn picture ``index``, uint8 (128, 128, 3): plain colours and gradients take turns.

    A crop of this size holds all of its borders and corners, of which crops of a large picture hold few.
    """
    rng = np.random.default_rng((seed, index, 1))
    return np.asarray((gradient, plain)[index % 2](rng, SMALL))


def _colour(rng: Rng, low: int = 0, high: int = 255) -> Colour:
    if rng.random() < 0.4:  # greys are frequent where people design
        level = int(rng.integers(low, high + 1))
        return level, level, level
    red, green, blue = (int(v) for v in rng.integers(low, high + 1, 3))
    return red, green, blue


def _paper_and_ink(rng: Rng) -> tuple[Colour, Colour]:
    """Background and foreground of a legible pair, dark on light twice as often as light on dark."""
    light, dark = _colour(rng, 200), _colour(rng, 0, 90)
    return (light, dark) if rng.random() < 2 / 3 else (dark, light)


def _word(rng: Rng) -> str:
    return "".join(rng.choice(list(_LETTERS + _SIGNS), int(rng.integers(1, 11)), p=_WEIGHTS))


def _line(rng: Rng, letters: int) -> str:
    line = _word(rng)
    while len(line) < letters:
        line += " " + _word(rng)
    return line


def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _page(rng: Rng, scale: float = 1) -> tuple[Image.Image, ImageDraw.ImageDraw, Colour]:
    """An empty page, so many times as large as `SIZE`, what draws on it, and a legible ink."""
    paper, ink = _paper_and_ink(rng)
    picture = Image.new("RGB", (round(scale * SIZE[1]), round(scale * SIZE[0])), paper)
    return picture, ImageDraw.Draw(picture), ink


def text(rng: Rng) -> Image.Image:
    """A page of paragraphs in several sizes, sometimes bold."""
    height, width = SIZE
    picture, pen, ink = _page(rng)
    y = float(rng.uniform(-5, 20))
    while y < height:
        size = float(np.exp(rng.uniform(np.log(8), np.log(48))))
        font, bold = _font(size), 1 if rng.random() < 0.15 else 0
        shade = ink if rng.random() < 0.8 else _paper_and_ink(rng)[1]
        left = rng.uniform(0, 60)
        for _ in range(int(rng.integers(1, 7))):
            pen.text((left, y), _line(rng, int(1.8 * width / size)), shade, font, stroke_width=bold)
            y += size * 1.3
        y += size * rng.uniform(0, 1)
    return picture


def interface(rng: Rng) -> Image.Image:
    """Windows, cards, buttons, fields, icons and charts, flat and with crisp borders."""
    height, width = SIZE
    picture, pen, ink = _page(rng)
    for _ in range(int(rng.integers(8, 26))):
        x, y = (int(v) for v in rng.integers((-20, -20), (width, height)))
        w, h = (int(v) for v in np.exp(rng.uniform(np.log(12), np.log((260, 160)))))
        box = (x, y, x + w, y + h)
        fill = None if rng.random() < 0.2 else _colour(rng)
        line = ink if fill is None or rng.random() < 0.4 else None
        thick = int(rng.integers(1, 4))
        match int(rng.integers(6)):
            case 0:
                pen.rectangle(box, fill, line, thick)
            case 1 | 2:
                pen.rounded_rectangle(box, int(rng.integers(2, 15)), fill, line, thick)
            case 3:
                pen.ellipse((x, y, x + h, y + h), fill, line, thick)
            case 4:  # a chart
                bars = rng.uniform(0.1, 1, int(rng.integers(3, 12)))
                step = max(3, w // len(bars))
                for i, bar in enumerate(bars):
                    left = x + i * step
                    pen.rectangle((left, y + round((1 - bar) * h), left + step - 2, y + h), fill or ink)
            case _:
                pen.line((x, y, x + w, y), line or ink, thick)
        size = float(rng.uniform(9, 20))
        if h > size:
            pen.text((x + 6, y + 3), _line(rng, max(1, int(w / size))), _paper_and_ink(rng)[1], _font(size))
    return picture


def line_art(rng: Rng) -> Image.Image:
    """Curves, polygons and circles, drawn at four times the size for smooth edges."""
    height, width = SIZE
    fine = 4
    picture, pen, ink = _page(rng, fine)
    extent = np.array([width, height]) * fine
    time = np.linspace(0, 1, 60)[:, None]
    for _ in range(int(rng.integers(10, 40))):
        shade = ink if rng.random() < 0.6 else _colour(rng)
        thick = round(fine * float(np.exp(rng.uniform(np.log(0.6), np.log(6)))))
        a, b, c, d = rng.uniform(-0.1, 1.1, (4, 2)) * extent
        match int(rng.integers(4)):
            case 0:  # a cubic curve
                points = (1 - time) ** 3 * a + 3 * time * (1 - time) ** 2 * b
                points = points + 3 * time**2 * (1 - time) * c + time**3 * d
                pen.line([*map(tuple, points)], shade, thick, joint="curve")
            case 1:
                pen.polygon([*map(tuple, (a, a + (b - a) * 0.3, a + (c - a) * 0.3))], shade)
            case 2:
                radius = rng.uniform(5, 60) * fine
                fill = shade if rng.random() < 0.3 else None
                pen.ellipse((*(a - radius), *(a + radius)), fill, shade, thick)
            case _:  # hatching
                step = np.array([rng.uniform(3, 10) * fine, 0])
                for i in range(int(rng.integers(5, 25))):
                    pen.line([*map(tuple, (a + i * step, a + i * step + (b - a) * 0.2))], shade, thick)
    return picture.resize((width, height), Image.Resampling.BOX)


def gradient(rng: Rng, size: tuple[int, int] = SIZE) -> Image.Image:
    """Two to four colours flowing into each other along a line or around a point, with few marks on top."""
    height, width = size
    y, x = np.mgrid[:height, :width].astype(np.float32)
    if rng.random() < 0.5:
        angle = rng.uniform(0, 2 * np.pi)
        position = x * np.cos(angle) + y * np.sin(angle)
    else:
        position = np.hypot(x - rng.uniform(0, width), y - rng.uniform(0, height))
    position = (position - position.min()) / np.ptp(position)
    stops = np.array([_colour(rng) for _ in range(int(rng.integers(2, 5)))], np.float32)
    knots = np.linspace(0, 1, len(stops))
    flow = np.stack([np.interp(position, knots, stops[:, i]) for i in range(3)], axis=2)
    picture = Image.fromarray(np.rint(flow).astype(np.uint8))
    pen = ImageDraw.Draw(picture)
    for _ in range(int(rng.integers(0, 4))):
        left, top = rng.uniform(0, width - 100), rng.uniform(0, height - 60)
        pen.text((left, top), _line(rng, 8), _colour(rng), _font(float(rng.uniform(14, 60))))
    return picture


def plain(rng: Rng, size: tuple[int, int] = SIZE) -> Image.Image:
    """One to four plain colours up to the borders, vivid ones among them: they show every wrong dot."""
    height, width = size
    picture = Image.new("RGB", (width, height), _plain_colour(rng))
    pen = ImageDraw.Draw(picture)
    for _ in range(int(rng.integers(0, 4))):
        left, top = rng.uniform(-0.5, 1, 2) * (width, height)
        right, bottom = (left, top) + rng.uniform(0.2, 1, 2) * (width, height)
        pen.rectangle((left, top, right, bottom), _plain_colour(rng))
    return picture


def _plain_colour(rng: Rng) -> Colour:
    """White, black, any colour, or one whose channels are mostly none or all."""
    kind = rng.random()
    if kind < 0.6:
        return (255, 255, 255) if kind < 0.2 else (0, 0, 0) if kind < 0.3 else _colour(rng)
    red, green, blue = (int(rng.choice([0, 255, int(rng.integers(256))])) for _ in range(3))
    return red, green, blue


def strokes(rng: Rng) -> Image.Image:
    """Thin lines, shapes or text in a few colours without smooth edges, as of plots, plans and terminals."""
    height, width = SIZE
    paper, ink = _paper_and_ink(rng)
    if rng.random() < 0.5:
        paper, ink = ((255, 255, 255), (0, 0, 0)) if rng.random() < 0.6 else ((0, 0, 0), (255, 255, 255))
    inks = [ink, *(_plain_colour(rng) for _ in range(int(rng.integers(0, 6))))]
    picture = Image.new("RGB", (width, height), paper)
    pen = ImageDraw.Draw(picture)
    pen.fontmode = "1"
    if rng.random() < 0.5:
        size = float(rng.uniform(7, 16))
        font = _font(size)
        for y in np.arange(rng.uniform(0, 10), height, size * rng.uniform(1, 2)):
            x = float(rng.uniform(0, 20))
            while x < width:
                word = _word(rng) + " "
                pen.text((x, y), word, inks[int(rng.integers(len(inks)))], font)
                x += pen.textlength(word, font) + rng.choice([0, 0, 0, 40])
        return picture
    for _ in range(int(np.exp(rng.uniform(np.log(5), np.log(80))))):
        a, b = (tuple(map(float, point)) for point in rng.uniform(-0.1, 1.1, (2, 2)) * (width, height))
        box = [min(a[0], b[0]), min(a[1], b[1]), max(a[0], b[0]), max(a[1], b[1])]
        shade, thick = inks[int(rng.integers(len(inks)))], int(rng.choice([1, 1, 1, 2]))
        match int(rng.integers(4)):
            case 0 | 1:
                pen.line((a, b), shade, thick)
            case 2:
                pen.rectangle(box, None, shade, thick)
            case _:
                pen.ellipse(box, None, shade, thick)
    return picture


def bitmap(rng: Rng) -> Image.Image:
    """What has few colours and no smooth edges: fax and pixel art; dithered, hatched, enlarged, or not."""
    height, width = SIZE
    if rng.random() < 0.5:
        return strokes(rng)
    picture = _any_of(rng, text, interface, line_art, gradient)
    scale = int(rng.choice([1, 1, 2, 3, 4, 8]))
    if scale > 1:  # dots of so many pixels a side
        small = -(-width // scale), -(-height // scale)
        picture = picture.resize(small, Image.Resampling.BOX)
    dither = Image.Dither.FLOYDSTEINBERG if rng.random() < 0.3 else Image.Dither.NONE
    if rng.random() < 0.5:
        ink, paper = _paper_and_ink(rng) if rng.random() < 0.4 else ((0, 0, 0), (255, 255, 255))
        picture = picture.convert("1", dither=dither).convert("L")
        picture = ImageOps.colorize(picture, ink, paper)
    else:
        picture = few_colours(picture, int(rng.integers(3, 17)), dither)
    if rng.random() < 0.5:
        picture = _hatched(picture, rng)
    whole = picture.resize((picture.width * scale, picture.height * scale), Image.Resampling.NEAREST)
    return whole.crop((0, 0, width, height))


def few_colours(picture: Image.Image, count: int, dither: Image.Dither) -> Image.Image:
    """An RGB picture in so many of its colours."""
    return picture.quantize(count, palette=picture.quantize(count), dither=dither).convert("RGB")


def _hatched(picture: Image.Image, rng: Rng) -> Image.Image:
    """A picture with rectangles of stripes or checks as fine as pixels, of any two colours."""
    pixels = np.array(picture)
    y, x = np.indices(pixels.shape[:2])
    for _ in range(int(rng.integers(1, 7))):
        top, left = (int(v) for v in rng.integers((-20, -20), pixels.shape[:2]))
        height, width = (int(v) for v in np.exp(rng.uniform(np.log(8), np.log(200), 2)))
        part = slice(max(top, 0), top + height), slice(max(left, 0), left + width)
        along = (x, y, x + y)[int(rng.integers(3))]  # at a period of 2 the last is a chessboard
        period = int(rng.choice([2, 2, 2, 3, 4]))
        first = np.array(_colour(rng))
        other = np.clip(first + rng.integers(-60, 61, 3), 0, 255) if rng.random() < 0.5 else _colour(rng)
        pixels[part] = np.where((along % period < period // 2)[..., None], first, other)[part]
    return Image.fromarray(pixels)


def halftone(rng: Rng) -> Image.Image:
    """A scan of print: soft dots on a lattice for each ink, the larger the darker it is there."""
    height, width = SIZE
    blur = ImageFilter.GaussianBlur(float(rng.uniform(2, 10)))
    light = np.asarray(_any_of(rng, gradient, line_art, interface).filter(blur), np.float32) / 255
    inks = np.eye(4, 3, dtype=np.float32)  # what cyan, magenta and yellow take of red, green and blue
    inks[3] = 1
    tones = np.concatenate([light, light.max(axis=2, keepdims=True)], axis=2)
    angles = np.deg2rad((15, 75, 0, 45)) + rng.uniform(0, np.pi / 2)  # of the inks' lattices
    if rng.random() < 0.4:  # black alone
        inks, angles, tones = inks[3:], angles[3:], light.mean(axis=2, keepdims=True)
    pitch = float(np.exp(rng.uniform(np.log(3), np.log(10))))
    y, x = np.mgrid[:height, :width].astype(np.float32) * np.float32(2 * np.pi / pitch)
    page = np.full((height, width, 3), rng.uniform(0.85, 1), np.float32)
    for i, (ink, angle) in enumerate(zip(inks, angles, strict=True)):
        across, along = np.cos(angle) * x + np.sin(angle) * y, np.cos(angle) * y - np.sin(angle) * x
        dots = (2 + np.cos(across) + np.cos(along)) / 4 > tones[..., i]
        page *= 1 - np.float32(rng.uniform(0.7, 0.95)) * ink * dots[..., None]
    picture = Image.fromarray((page * 255).astype(np.uint8))
    return picture.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.5, max(0.5, 0.15 * pitch)))))


def lines(rng: Rng) -> Image.Image:
    """Thin lines with smooth edges, close to one another: maps, graph paper, wiring, with words between."""
    height, width = SIZE
    scale = 3  # they are drawn so many times as large
    picture, pen, ink = _page(rng, scale)
    inks = [ink, *(_colour(rng) for _ in range(int(rng.integers(0, 8))))]
    thick = max(1, round(scale * float(np.exp(rng.uniform(np.log(0.6), np.log(3))))))
    kind = rng.random()
    if kind < 0.35:  # a lattice, every fifth or tenth line thicker
        pitch, every = float(np.exp(rng.uniform(np.log(2.2), np.log(25)))), int(rng.choice([5, 10, 1000]))
        shade = _colour(rng)
        for across, end in ((True, width), (False, height)):
            for i in range(int(end / pitch) + 1):
                at = scale * pitch * i
                ends = (at, 0, at, scale * height) if across else (0, at, scale * width, at)
                pen.line(ends, shade, thick * (1 + (i % every == 0)))
    if kind > 0.25:
        turns = int(rng.integers(2, 12))
        for i in range(int(np.exp(rng.uniform(np.log(10), np.log(150))))):
            points = rng.uniform(-0.1, 1.1, (turns, 2))
            if rng.random() < 0.5:  # winding, as rivers and contours are
                points = points[0] + np.cumsum(rng.normal(0, 0.06, (turns, 2)), axis=0)
            track = [tuple(map(float, point)) for point in points * (scale * width, scale * height)]
            pen.line(track, inks[i % len(inks)], thick, "curve")
    picture = picture.resize((width, height), Image.Resampling(int(rng.choice([1, 3, 4]))))
    pen = ImageDraw.Draw(picture)
    for _ in range(int(rng.integers(0, 80))):
        x, y = (float(v) for v in rng.uniform(0, 1, 2) * (width, height))
        pen.text((x, y), _word(rng), inks[int(rng.integers(len(inks)))], _font(float(rng.uniform(7, 14))))
    return picture


def small_print(rng: Rng) -> Image.Image:
    """A page of small letters close to one another, reduced to a preview, some a little soft, as scanned."""
    height, width = SIZE
    scale = float(rng.uniform(1.5, 4))  # it is drawn so many times as large
    picture, pen, ink = _page(rng, scale)
    y = 0.0
    while y < picture.height:
        size = float(np.exp(rng.uniform(np.log(5), np.log(14))))  # in the end
        shade, font = ink if rng.random() < 0.8 else _paper_and_ink(rng)[1], _font(scale * size)
        apart, left = scale * size * rng.uniform(1.1, 1.6), scale * rng.uniform(0, 40)
        for _ in range(int(rng.integers(3, 30))):
            pen.text((left, y), _line(rng, int(1.8 * width / size)), shade, font)
            y += apart
        y += scale * size
    picture = picture.resize((width, height), Image.Resampling(int(rng.choice([1, 2, 3, 4]))))
    if rng.random() < 0.3:
        picture = picture.filter(ImageFilter.GaussianBlur(float(rng.uniform(0.3, 0.8))))
    return picture


def _any_of(rng: Rng, *kinds: Callable[[Rng], Image.Image]) -> Image.Image:
    return kinds[int(rng.integers(len(kinds)))](rng)


KINDS: tuple[Callable[[Rng], Image.Image], ...] = (
    text, interface, line_art, gradient, plain, bitmap, halftone, lines, small_print,
)  # fmt: skip
