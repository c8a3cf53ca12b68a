"""The web page: what stands where, and which job of `web_jobs.Workshop` each button starts.

Pictures go in and out as files, so that nothing is converted on the way: what is shown is a preview,
what is downloaded was written by the command line's writer. Jobs on the models share one queue, one at
a time; each is also an endpoint with a name (docs/web-ui.md).
"""

from __future__ import annotations

import html
import itertools
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from zenith_ae import __version__
from zenith_ae.engine import Progress
from zenith_ae.images import READABLE_SUFFIXES
from zenith_ae.latents import BITS
from zenith_ae.pipelines import PASSES

from . import web_words as words
from .web_endpoints import add_endpoints
from .web_jobs import BatchState, Workshop, noise_settings, sharpens, shipped_models, short
from .web_windows import DEVICE, StoppedError, View, Views, guarded

#: What Gradio puts into the page.
STYLE, SCRIPT = (Path(__file__).with_name(f"web_page.{kind}") for kind in ("css", "js"))

#: Of the files that it offers to open, beside those that a browser takes for images.
ENDINGS = ",".join(sorted(READABLE_SUFFIXES | {".safetensors"}))
#: Pressed again while it computes, a button counts: else the result would not be of the settings shown.
LATEST: dict[str, Any] = {"trigger_mode": "always_last"}
#: What no job may hold up: another file, a press of a button.
AT_ONCE: dict[str, Any] = {"queue": False, "show_progress": "hidden"}
Updates = dict[Any, Any]
#: Among the updates of a result: one of its files, which later results replace.
_MADE = "made"
VIEW: dict[str, Any] = {"buttons": ["fullscreen"], "interactive": False}
GALLERY: dict[str, Any] = VIEW | {"object_fit": "contain", "height": "auto", "elem_classes": "pictures"}
PRIVATE: dict[str, Any] = {"api_visibility": "private"}


# A list of options is no field of the browser, which would tell that it changed.
_CHOSEN = """() => {
    document.querySelector('#latents-settings').dispatchEvent(new Event('input', {bubbles: true}));
}"""


def theme() -> gr.themes.Base:
    """Fonts of the reader's own system: nothing is fetched from anywhere."""
    label: dict[str, Any] = {
        "block_title_background_fill": "none",
        "block_title_padding": "0",
        "block_title_text_color": "*body_text_color",
        "block_title_text_weight": "600",
        "block_label_background_fill": "*background_fill_primary",
        "block_label_text_color": "*body_text_color",
        "block_label_text_weight": "600",
    }
    return gr.themes.Soft(
        primary_hue="orange",
        secondary_hue="orange",
        neutral_hue="slate",
        font=["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"],
        font_mono=["ui-monospace", "Menlo", "Consolas", "monospace"],
    ).set(
        **label,
        **{f"{name}_dark": value for name, value in label.items() if "color" in name or "fill" in name},
        # White on these is 5.2 : 1 and more.
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_dark="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_background_fill_hover_dark="*primary_800",
        link_text_color="*primary_700",
        checkbox_label_background_fill_selected="*primary_100",
        checkbox_label_background_fill_selected_dark="*primary_900",
        checkbox_label_text_color_selected="*body_text_color",
        body_text_color_subdued="*neutral_500",  # 4.8 : 1 on white
        block_border_width="1px",
        input_border_width="1px",
        checkbox_border_width="1px",
        checkbox_border_color="*neutral_400",
        button_secondary_background_fill="*neutral_100",
        button_secondary_background_fill_hover="*neutral_200",
    )


def build(workshop: Workshop, noisy: Sequence[Path], clean: Sequence[Path]) -> gr.Blocks:
    """The page. ``noisy`` and ``clean`` are pictures that a click loads."""
    with gr.Blocks(title="zenith-ae", analytics_enabled=False, delete_cache=(3600, 6 * 3600)) as page:
        with gr.Row(elem_id="head"):
            gr.HTML(
                f"<h1>zenith-ae <small>{__version__}</small></h1>"
                "<p>Cleans noisy pictures, sharpens soft ones. "
                "Everything stays on the computer that runs this page.</p>"
            )
            gr.Button("◐", elem_id="mode", size="sm")
        with gr.Tabs(elem_id="tabs"):
            with gr.Tab("Denoise", id="denoise"):
                _denoise_tab(page, workshop, noisy)
            with gr.Tab("Latents", id="latents"):
                _latents_tab(page, workshop, clean)
            with gr.Tab("Batch", id="batch"):
                _batch_tab(page, workshop)
            with gr.Tab("Compare", id="compare"):
                _compare_tab(page, workshop, clean[:1])
        add_endpoints(workshop)
    # Gradio's /run and /api go past the queue: whoever asks there has a job at once, and any number of them.
    page.queue(max_size=64, default_concurrency_limit=2, api_open=False)
    return page


def _for_page(workshop: Workshop, work: Callable, place: gr.HTML, blank: Callable[[], Updates]) -> Callable:
    """``work`` whose every failure is one line at ``place``, where the result would be.

    ``blank`` gives the updates that take away what an earlier picture left.
    """

    def complain(error: Exception) -> Updates:
        text = html.escape(workshop.describe(error))
        return blank() | {place: f"<div class='failed alone' role=alert>{text}</div>"}

    return guarded(work, complain)


def _for_file(
    workshop: Workshop,
    views: Views,
    work: Callable,
    place: gr.HTML,
    blank: Callable[[], Updates],
    idle: Callable[[], Updates],
) -> Callable:
    """`_for_page` of ``work(report, file, ...)`` whose result is shown only where that file is still there.

    What runs takes the number of its press before the file. ``report`` takes the share that is done, and ends
    the work where nobody wants it any more. ``idle`` gives the updates for when no job is left.
    """

    def run(request: gr.Request, progress: Any = gr.Progress(), *values: Any) -> Updates:  # noqa: B008
        press, file, *settings = values
        view, failed = views.still(request), True
        if view is None:
            return {place: gr.skip()}
        flag = view.begin(press, file)

        def report(share: float) -> None:
            if flag.is_set():
                raise StoppedError
            if 0 < share < 1:  # else it may be over before anybody sees it
                progress(share, desc="Working")

        def unless_stopped() -> Updates:
            nonlocal failed
            try:
                report(0)
                updates: Updates = work(report, file, *settings)
            except StoppedError:
                return {}
            failed = False
            return updates

        updates: Updates = _for_page(workshop, unless_stopped, place, blank)()
        made = updates.pop(_MADE, None)
        if flag.is_set() or view.has_gone(file):
            updates = {place: gr.skip()}
            if made:  # nobody sees it
                shutil.rmtree(Path(made).parent, ignore_errors=True)
        else:
            view.shown, view.pictured = file, not failed
            if made:
                view.holds(made)
        view.end(press)
        return updates if view.is_busy else updates | idle()

    return run


class _Buttons:
    """The button that starts a tab's job, the one that ends it, and where the number of a press is kept."""

    def __init__(self, views: Views, label: str, tab: str) -> None:
        self._views = views
        with gr.Row():
            self.go = gr.Button(label, variant="primary", size="lg", elem_id=f"{tab}-go", elem_classes="go",
                                scale=3, min_width=160)  # fmt: skip
            self.stop = gr.Button("Cancel", size="lg", elem_id=f"{tab}-stop", elem_classes="halt", scale=1,
                                  min_width=90, interactive=False)  # fmt: skip
        self.pressed = gr.Number(visible=False)
        self.stop.click(self._cancel, None, self.stop, **AT_ONCE, **PRIVATE)

    def press(self, request: gr.Request) -> Updates:
        return {self.pressed: self._views.press(request), self.stop: gr.Button(interactive=True)}

    def idle(self) -> Updates:
        """Updates for when no job is left."""
        return {self.stop: gr.Button(interactive=False)}

    def _cancel(self, request: gr.Request) -> Updates:
        self._views.of(request).stop()
        return self.idle()


def _drop(label: str, many: bool = False) -> gr.File:
    """Takes any file: Gradio would go by names, but what a file is its content tells."""
    return gr.File(label=label, file_count="multiple" if many else "single",
                   elem_classes="many" if many else None,
                   height=220 if many else 150, type="filepath")  # fmt: skip


def _examples(workshop: Workshop, examples: Sequence[Path], target: gr.File, label: str) -> None:
    """Thumbnails; a click gives the target a copy of that file."""
    if not examples:
        return

    def take(index: int) -> str:
        source = examples[int(index) % len(examples)]
        return str(shutil.copy(source, workshop.new_folder() / source.name))

    data = gr.Dataset(label=label, components=[gr.Image(visible=False, type="filepath")], type="index",
                      samples=[[str(e)] for e in examples], elem_classes="examples")  # fmt: skip
    data.click(take, data, target, show_progress="hidden", **PRIVATE)


#: What each model takes away.
WRONG = {
    "zenith-denoise": "Noise",
    "zenith-denoise-fast": "Noise, in less time",
    "zenith-denoise-large": "Noise, at best quality",
    "zenith-deblur": "Softness",
}


def _verb(model: str) -> str:
    return "Sharpen" if sharpens(model) else "Denoise"


def _noise_controls() -> list[Any]:
    """Model, automatic, level, and the settings: what a denoising job takes."""
    names = shipped_models("denoiser")
    model = gr.Radio([(WRONG.get(name, name), name) for name in names], value=names[0] if names else None,
                     label="What is wrong with the picture?")  # fmt: skip
    auto = gr.Checkbox(True, label="Find the noise level by itself",
                       info="It looks at every part. Switch off to choose the level.")  # fmt: skip
    level = gr.Slider(0, 100, 25, step=0.5, label="Noise level", visible=False,
                      info="5 is faint, 15 visible, 30 strong, 50 very strong.")  # fmt: skip
    share: dict[str, Any] = {"minimum": 0, "maximum": 1, "step": 0.05, "elem_classes": "share"}
    strength = gr.Slider(value=1, label="Strength", info="How much of it goes: 1 all, 0 nothing.", **share)
    with gr.Accordion("More", open=False):
        luma = gr.Slider(value=1, label="Brightness", info="Its share of the strength.", **share)
        chroma = gr.Slider(value=1, label="Colour", info="Its share of the strength.", **share)
        grain = gr.Slider(value=0, label="Keep fine grain", info="A little looks like film.", **share)
        passes = gr.Radio(
            list(PASSES), value=1, label="Passes", info="The mean of several is cleaner, but takes longer."
        )
    auto.change(lambda on: gr.Slider(visible=not on), auto, level, show_progress="hidden", **PRIVATE)
    return [model, auto, level, strength, luma, chroma, grain, passes]


# ---- Denoise ----------------------------------------------------------------------------------------


def _denoise_tab(page: gr.Blocks, workshop: Workshop, examples: Sequence[Path]) -> None:
    views = Views(page, workshop)
    with gr.Row():
        with gr.Column(scale=4, min_width=300):
            file = _drop("A picture")
            _examples(workshop, examples, file, "Or try one of these")
            with gr.Column(elem_id="denoise-settings", elem_classes="settings"):
                controls = _noise_controls()
            buttons = _Buttons(views, "Denoise", "denoise")
            adjust = gr.Button("Adjust", visible="hidden", elem_classes="adjust")
            estimate, own_level = gr.Number(visible=False), gr.Checkbox(False, visible=False)
        with gr.Column(scale=7, min_width=300, elem_classes="results"):
            wait = gr.HTML(words.placeholder("Your picture appears here", "Drop one, or click an example."))
            slider = gr.ImageSlider(label="Before and after", type="filepath", visible=False, max_height=560,
                                    buttons=["fullscreen"], elem_id="denoise-slider")  # fmt: skip
            facts = gr.HTML(elem_id="denoise-facts", elem_classes="outcome")
            get = gr.DownloadButton("Download", visible=False, variant="primary", elem_id="denoise-get")
            with gr.Accordion("What was removed", visible=False, open=True) as more:
                removed = gr.Image(show_label=False, **VIEW,
                                   elem_id="denoise-removed", elem_classes="whole")  # fmt: skip
                removed_note = gr.HTML()
    outputs = [wait, slider, facts, get, more, removed, removed_note]
    numbers = itertools.count()  # so that the page tells a result from one of the same words
    model, _, level, *_ = controls
    model.change(lambda name: gr.Button(_verb(name)), model, buttons.go,
                 show_progress="hidden", **PRIVATE)  # fmt: skip

    def blank() -> Updates:
        return {
            wait: gr.HTML(visible=False),
            slider: gr.ImageSlider(value=None, visible=False),
            get: gr.DownloadButton(visible=False),
            more: gr.Accordion(visible=False),
            removed: None,
        }

    def press(request: gr.Request) -> Updates:
        updates = buttons.press(request)
        # Where there is no picture, there is a place for progress, and no error of earlier.
        return updates if views.of(request).pictured else updates | {wait: gr.HTML(visible=True), facts: ""}

    def turn(request: gr.Request, file: str | None) -> Updates:
        view = views.of(request)
        view.turn(file)
        # A press may be faster than this; its progress needs a place, as in `press`.
        place = gr.HTML(visible=not file or view.is_busy)
        return {facts: gr.skip()} if view.shown else blank() | {wait: place, facts: ""}

    def look(view: View, file: str, model: str) -> Updates:
        result = workshop.inspect(file, model)
        view.pictured = not view.has_gone(file)
        before = result.files["before"]
        updates = blank() | {
            slider: gr.ImageSlider(value=(before, before), visible=True),
            facts: words.cards(words.picture_card(result.facts), words.noise_card(result.facts))
            + words.reduced(result.facts),
        }
        if (sigma := result.facts.get("sigma")) is not None:
            updates[estimate] = min(100.0, round(sigma * 2) / 2)
        return updates

    safe_look = _for_page(workshop, look, facts, blank)

    def show(request: gr.Request, file: str | None, model: str) -> Updates:
        """What is known of a picture at once, unless there is already more, or another one."""
        view, nothing = views.still(request), {facts: gr.skip()}
        if not file or view is None or view.has_gone(file) or view.shown:
            return nothing
        updates: Updates = safe_look(view, file, model)
        return nothing if view.has_gone(file) or view.shown else updates

    def run(
        report: Progress, file: str | None, model: str, auto: bool, sigma: float, *settings: Any
    ) -> Updates:
        result = workshop.denoise(
            file, model, None if auto else sigma, report, True, **noise_settings(*settings)
        )
        found, files = result.facts, result.files
        cards = words.cards(words.picture_card(found), words.noise_card(found), words.time_card(found))
        adjustable = " adjustable" if found.get("adjustable") else ""
        sharpened = sharpens(model)
        note = f"The difference, amplified {found['gain']} times; middle grey is unchanged. "
        note += (
            "Edges in it are what makes the picture sharp."
            if sharpened
            else "Edges or texture in it would be detail that was lost."
        )
        return {
            _MADE: files["picture"],
            wait: gr.HTML(visible=False),
            slider: gr.ImageSlider(value=(files["before"], files["after"]), visible=True),
            facts: f"<div class='result{adjustable}' data-number={next(numbers)}>{cards}</div>"
            + words.notes(found),
            get: _download(found, files["picture"]),
            more: gr.Accordion("What was changed" if sharpened else "What was removed", visible=True),
            removed: files["removed"],
            removed_note: f"<p class=note>{note}</p>",
        }

    file.change(None, None, own_level, js="() => false", **PRIVATE)
    level.input(None, None, own_level, js="() => true", **PRIVATE)
    file.change(turn, file, outputs, **AT_ONCE, **PRIVATE).then(
        show, [file, model], [*outputs, estimate], show_progress_on=facts, **LATEST, **DEVICE, **PRIVATE
    ).then(  # where the level begins if somebody takes over by hand, who may have done so meanwhile
        None, [estimate, own_level, level], level, js="(found, own, level) => own ? level : found ?? level",
        **PRIVATE,
    )  # fmt: skip
    work = _for_file(workshop, views, run, facts, blank, buttons.idle)
    for button, following in ((buttons.go, True), (adjust, False)):
        button.click(
            press, None, [buttons.pressed, buttons.stop, wait, facts], **LATEST, **AT_ONCE, **PRIVATE
        ).then(
            work, [buttons.pressed, file, *controls], [*outputs, buttons.stop], scroll_to_output=following,
            show_progress_on=[slider, wait], show_progress="full" if following else "minimal",
            # Of a press while another waits Gradio would show nothing until that one has had its turn.
            **(LATEST if button is adjust else {"trigger_mode": "multiple"}), **DEVICE, **PRIVATE,
        )  # fmt: skip


# ---- Latents ----------------------------------------------------------------------------------------


def _latents_tab(page: gr.Blocks, workshop: Workshop, examples: Sequence[Path]) -> None:
    names, views = shipped_models("autoencoder"), Views(page, workshop)
    with gr.Row():
        with gr.Column(scale=4, min_width=300):
            file = _drop("A picture, or a latent file")
            _examples(workshop, examples, file, "Or try one of these")
            with gr.Column(elem_id="latents-settings", elem_classes="settings"):
                model = gr.Dropdown(list(names), value=names[0] if names else None, label="Model",
                                    info="For pictures. A latent file names its own model.")  # fmt: skip
                formats = sorted(BITS, key=lambda name: BITS[name])
                dtype = gr.Radio([(f"{BITS[name]} bit", name) for name in formats], value="fp16",
                                 label="Numbers", info="8 bit is a quarter of 32, and close.")  # fmt: skip
            buttons = _Buttons(views, "Encode and decode", "latents")
        with gr.Column(scale=7, min_width=300, elem_classes="results"):
            wait = gr.HTML(words.placeholder("A picture becomes latents and comes back",
                                 "Drop a picture, or a .latent.safetensors file to decode."))  # fmt: skip
            slider = gr.ImageSlider(label="Original and decoded", type="filepath", visible=False,
                                    buttons=["fullscreen"], elem_id="latents-slider")  # fmt: skip
            decoded = gr.Image(label="Decoded", visible=False, **VIEW,
                               elem_id="latents-decoded", height=480)  # fmt: skip
            facts = gr.HTML(elem_id="latents-facts", elem_classes="outcome")
            with gr.Row():
                get_latents = gr.DownloadButton("Latents", visible=False, variant="primary",
                                                elem_id="latents-get", min_width=200)  # fmt: skip
                get = gr.DownloadButton("Picture", visible=False, elem_id="latents-picture", min_width=200)
            with gr.Accordion("Latent channels", visible=False, open=True) as grid:
                channels = gr.Image(show_label=False, **VIEW,
                                    elem_id="latents-channels", elem_classes="whole")  # fmt: skip
                grid_note = gr.HTML()
            with gr.Accordion("Difference", visible=False, open=False) as more:
                difference = gr.Image(show_label=False, **VIEW,
                                      elem_classes="whole")  # fmt: skip
                more_note = gr.HTML()
    outputs = [wait, slider, decoded, facts, get_latents, get]
    outputs += [grid, channels, grid_note, more, difference, more_note]

    def blank() -> Updates:
        hidden = {get_latents: gr.DownloadButton(visible=False), get: gr.DownloadButton(visible=False)}
        return hidden | {
            wait: gr.HTML(visible=False),
            slider: gr.ImageSlider(value=None, visible=False),
            decoded: gr.Image(value=None, visible=False),
            grid: gr.Accordion(visible=False),
            more: gr.Accordion(visible=False),
        }

    def run(report: Progress, file: str | None, model: str, dtype: str) -> Updates:
        decode = bool(file) and workshop.is_latent_file(str(file))
        result = workshop.decode(file, report) if decode else workshop.roundtrip(file, model, dtype, report)
        found, files = result.facts, result.files
        numbers = f" <small>{BITS[found['dtype']]} bit</small>" if "dtype" in found else ""
        cards = [
            words.picture_card(found),
            ("Model", f"{short(found['model'])}{numbers}"),
            *([] if decode else [words.closeness_card(found)]),
            words.latents_card(found),
            words.time_card(found),
        ]
        shape = found["latent_shape"]
        note = f"{shape[1]} channels of {shape[3]} × {shape[2]}: blue below, orange above a channel's mean."
        updates = blank() | {
            # The settings are none of a latent file's, which names its own model.
            facts: f"<div class='result{' fixed' if decode else ''}'>{words.cards(*cards)}</div>"
            + words.notes(found),
            get: _download(found, files["picture"], "picture"),
            grid: gr.Accordion(visible=True),
            channels: files["channels"],
            grid_note: f"<p class=note>{note}</p>",
        }
        if decode:
            return updates | {decoded: gr.Image(value=files["after"], visible=True)}
        name = f"Download latents ({words.file_size(found['latent_bytes'])})"
        return updates | {
            slider: gr.ImageSlider(value=(files["before"], files["after"]), visible=True),
            get_latents: gr.DownloadButton(name, value=files["latents"], visible=True),
            more: gr.Accordion(visible=True),
            difference: files["removed"],
            more_note: f"<p class=note>Original minus decoded, amplified {found['gain']} times.</p>",
        }

    def turn(request: gr.Request, file: str | None) -> Updates:
        view = views.of(request)
        view.turn(file)
        name = "Decode" if file and workshop.is_latent_file(file) else "Encode and decode"
        old = {} if view.shown else blank() | {wait: gr.HTML(visible=True), facts: ""}
        return old | {buttons.go: gr.Button(name)}

    model.input(None, js=_CHOSEN, **PRIVATE)
    file.change(turn, file, [*outputs, buttons.go], **AT_ONCE, **PRIVATE)
    buttons.go.click(
        buttons.press, None, [buttons.pressed, buttons.stop], **LATEST, **AT_ONCE, **PRIVATE
    ).then(
        _for_file(workshop, views, run, facts, blank, buttons.idle),
        [buttons.pressed, file, model, dtype], [*outputs, buttons.stop],
        scroll_to_output=True, show_progress_on=[slider, decoded, wait], **LATEST, **DEVICE, **PRIVATE,
    )  # fmt: skip


# ---- Batch ------------------------------------------------------------------------------------------


def _batch_tab(page: gr.Blocks, workshop: Workshop) -> None:
    views = Views(page, workshop)
    with gr.Row():
        with gr.Column(scale=4, min_width=300):
            files = _drop("Pictures, or a ZIP of them", many=True)
            with gr.Column(elem_classes="settings"):
                controls = _noise_controls()
            go = gr.Button("Denoise all", variant="primary", size="lg", elem_id="batch-go",
                           elem_classes="go")  # fmt: skip
            stop = gr.Button("Cancel", visible=False, variant="stop", elem_id="batch-stop")
            pressed = gr.Number(visible=False)
        with gr.Column(scale=7, min_width=300, elem_classes="results"):
            waiting = words.placeholder(
                "Many pictures at once", "You get a ZIP with the same names and formats."
            )
            status = gr.HTML(waiting, elem_id="batch-status", elem_classes="outcome")
            get = gr.DownloadButton("Download", visible=False, variant="primary", elem_id="batch-get")
            gallery = gr.Gallery(show_label=False, columns=4, visible=False,
                                 **GALLERY, elem_id="batch-gallery")  # fmt: skip

    controls[0].change(lambda name: gr.Button(f"{_verb(name)} all"), controls[0], go,
                       show_progress="hidden", **PRIVATE)  # fmt: skip

    def run(
        request: gr.Request,
        press: int,
        files: list[str] | None,
        model: str,
        auto: bool,
        sigma: float,
        *settings: Any,
    ) -> Iterator[Updates]:
        view = views.still(request)
        if view is None:
            yield {status: gr.skip()}
            return
        flag = view.begin(press)
        shown = 0
        level = None if auto else sigma

        def look(_: float) -> None:
            if views.still(request) is None:  # else the picture in hand is finished
                raise StoppedError

        try:
            if flag.is_set():  # while it waited; the page says so already
                yield {status: gr.skip()}
                return
            for state in workshop.batch(files, model, level, flag.is_set, look, **noise_settings(*settings)):
                begins = not state.done and not state.share
                new = state.finished or begins or len(state.thumbnails) >= shown + (1 if shown < 8 else 8)
                shown = len(state.thumbnails) if new else shown
                updates: Updates = {
                    status: (_OTHER_FILES if view.moved else "") + words.batch_status(state),
                    go: gr.Button(interactive=state.finished),
                }
                if state.finished:
                    updates[stop] = gr.Button("Cancel", visible=False, interactive=True)
                if new:
                    updates[gallery] = gr.Gallery(value=list(state.thumbnails), visible=shown > 0)
                if state.archive:
                    updates[get] = gr.DownloadButton(_zip_label(state), value=state.archive, visible=True)
                elif begins:
                    updates[get] = gr.DownloadButton(visible=False)
                yield updates
        finally:
            view.end(press)

    def blank() -> Updates:
        return {get: gr.DownloadButton(visible=False), gallery: gr.Gallery(value=None, visible=False),
                stop: gr.Button("Cancel", visible=False, interactive=True),
                go: gr.Button(interactive=True)}  # fmt: skip

    def press(request: gr.Request) -> Updates:
        waits = {status: "<p><b>Waits for its turn</b></p>", stop: gr.Button(visible=True)}
        return blank() | waits | {pressed: views.press(request), go: gr.Button(interactive=False)}

    def cancel(request: gr.Request) -> Updates:
        if views.of(request).stop():
            return {stop: gr.Button("Finishes the picture in hand …", interactive=False)}
        return blank() | {status: waiting}

    def changed(request: gr.Request) -> Updates:
        """Other files: what an earlier batch left is not theirs. One that runs goes on."""
        view = views.of(request)
        view.moved = view.is_busy
        return {status: gr.skip()} if view.moved else blank() | {status: waiting}

    outputs = [status, get, gallery, stop, go]
    files.change(changed, None, outputs, **AT_ONCE, **PRIVATE)
    go.click(press, None, [pressed, *outputs], **LATEST, **AT_ONCE, **PRIVATE).then(
        _for_page(workshop, run, status, blank), [pressed, files, *controls], outputs,
        show_progress_on=status, **LATEST, **DEVICE, **PRIVATE,
    )  # fmt: skip
    stop.click(cancel, None, outputs, **AT_ONCE, **PRIVATE)


_OTHER_FILES = "<p class=mark>The files have changed: this is the batch of those before.</p>"


def _zip_label(state: BatchState) -> str:
    return f"Download the ZIP ({words.file_size(Path(str(state.archive)).stat().st_size)})"


# ---- Compare ----------------------------------------------------------------------------------------


def _compare_tab(page: gr.Blocks, workshop: Workshop, examples: Sequence[Path]) -> None:
    views = Views(page, workshop)
    names = [*shipped_models("denoiser"), *shipped_models("autoencoder")]
    with gr.Row():
        with gr.Column(scale=4, min_width=300):
            file = _drop("A clean picture")
            _examples(workshop, examples, file, "Or try this one")
            with gr.Column(elem_classes="settings"):
                models = gr.CheckboxGroup(names, value=names, label="Models")
                sigma = gr.Slider(0, 75, 25, step=1, label="Noise to add",
                                  info="Denoisers get the picture with this noise.")  # fmt: skip
            buttons = _Buttons(views, "Compare", "compare")
        with gr.Column(scale=7, min_width=300, elem_classes="results"):
            wait = gr.HTML(
                words.placeholder("Every model on one picture", "Side by side, with time and quality.")
            )
            gallery = gr.Gallery(show_label=False, columns=2, visible=False,
                                 **GALLERY, elem_id="compare-gallery")  # fmt: skip
            table = gr.HTML(elem_id="compare-table", elem_classes="outcome")
    with gr.Row():
        with gr.Column(scale=4, min_width=300):
            gr.HTML("<h3>This machine</h3><p class=note>How many megapixels each model does in a second, on "
                    "512 × 512 pixels. Takes ten seconds or more.</p>")  # fmt: skip
            measure = gr.Button("Measure", elem_id="compare-measure")
        with gr.Column(scale=7, min_width=300):
            chart = gr.HTML(elem_id="compare-chart")

    def blank() -> Updates:
        return {wait: gr.HTML(visible=False), gallery: gr.Gallery(value=None, visible=False)}

    def run(report: Progress, file: str | None, models: list[str], sigma: float | None) -> Updates:
        result = workshop.compare(file, models, sigma, report)
        rows = {row["model"]: row for row in result.facts["rows"]}
        shown = []
        for key, path in result.files.items():
            if key in rows:
                caption = f"{short(key)}: {words.decibels(rows[key]['psnr'])}"
            elif key == "noisy":
                caption = (
                    f"with noise {result.facts['sigma']:g}: {words.decibels(result.facts['noisy_psnr'])}"
                )
            elif key == "soft":
                caption = f"blurred: {words.decibels(result.facts['soft_psnr'])}"
            else:
                caption = "original"
            shown.append((path, caption))
        return blank() | {
            gallery: gr.Gallery(value=shown, visible=True),
            table: words.comparison_table(result),
        }

    def bench() -> Iterator[Updates]:
        yield {chart: "<p class=note>Measuring …</p>"}
        yield {chart: words.speed_bars(workshop.benchmark())}

    def turn(request: gr.Request, file: str | None) -> Updates:
        view = views.of(request)
        view.turn(file)
        return {table: gr.skip()} if view.shown else blank() | {wait: gr.HTML(visible=True), table: ""}

    outputs = [wait, gallery, table]
    file.change(turn, file, outputs, **AT_ONCE, **PRIVATE)
    buttons.go.click(
        buttons.press, None, [buttons.pressed, buttons.stop], **LATEST, **AT_ONCE, **PRIVATE
    ).then(
        _for_file(workshop, views, run, table, blank, buttons.idle),
        [buttons.pressed, file, models, sigma], [*outputs, buttons.stop],
        scroll_to_output=True, show_progress_on=[gallery, wait], **LATEST, **DEVICE, **PRIVATE,
    )  # fmt: skip
    measure.click(_for_page(workshop, bench, chart, dict), None, chart, show_progress_on=chart,
                  **DEVICE, **PRIVATE)  # fmt: skip


def _download(facts: dict[str, Any], path: str, what: str | None = None) -> gr.DownloadButton:
    label = f"Download {what or facts['output']} ({words.file_size(facts['output_bytes'])})"
    return gr.DownloadButton(label, value=path, visible=True)
