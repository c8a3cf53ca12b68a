"""The web page: what stands where, and which job of `web_jobs.Workshop` each button starts.

Pictures go in and out as files, so that nothing is converted on the way: what is shown is a preview,
what is downloaded was written by the command line's writer. Jobs on the models share one queue, one at
a time; each is also an endpoint with a name (docs/web-ui.md).
"""

from __future__ import annotations

import functools
import html
import inspect
import itertools
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from zenith_ae import __version__
from zenith_ae.engine import Progress
from zenith_ae.errors import ZenithError
from zenith_ae.images import READABLE_SUFFIXES
from zenith_ae.latents import BITS, DTYPES
from zenith_ae.pipelines import PASSES

from .session import EQUAL
from .web_jobs import BatchState, Result, Workshop, sharpens, shipped_models, short

__all__ = ["CSS", "build", "theme"]

PICTURES = ["image", *sorted(READABLE_SUFFIXES)]
DEVICE: dict[str, Any] = {"concurrency_id": "device", "concurrency_limit": 1}
#: Pressed again while it computes, a button counts: else the result would not be of the settings shown.
LATEST: dict[str, Any] = {"trigger_mode": "always_last"}
#: What no job may hold up: another file, a press of a button.
AT_ONCE: dict[str, Any] = {"queue": False, "show_progress": "hidden"}
Updates = dict[Any, Any]
VIEW: dict[str, Any] = {"buttons": ["fullscreen"], "interactive": False}
GALLERY: dict[str, Any] = VIEW | {"object_fit": "contain", "height": "auto", "elem_classes": "pictures"}
#: Pillow's modes for people; those that are not here say it themselves.
WORDS = {"L": "grey", "I;16": "grey", "I": "grey", "F": "grey", "LA": "grey and alpha", "P": "palette",
         "RGBA": "RGB and alpha", "1": "black and white"}  # fmt: skip
PRIVATE: dict[str, Any] = {"api_visibility": "private"}

CSS = """
input:is([type=range], [type=radio], [type=checkbox]):focus-visible {
    outline: 3px solid var(--color-accent) !important; outline-offset: 2px;
}
.gradio-container { max-width: none !important; }
.gradio-container .main.fillable { max-width: 1240px !important; padding: 16px 24px !important; }
.gradio-container .html-container { padding: 0 !important; }
#head { align-items: center; flex-wrap: nowrap; }
#head h1 { margin: 0; font-size: 1.5rem; letter-spacing: -.01em; }
#head h1 small { font-size: .8rem; font-weight: 400; color: var(--body-text-color-subdued); }
#head p { margin: 2px 0 0; color: var(--body-text-color-subdued); }
#mode { max-width: 2.75rem; min-width: 2.75rem; font-size: 1.1rem; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(112px, 1fr)); gap: 8px; margin: 0; }
.facts div { border: 1px solid var(--border-color-primary); border-radius: 10px; padding: 8px 12px;
    background: var(--block-background-fill); min-width: 0; }
.facts dt { font-size: .75rem; color: var(--body-text-color-subdued); margin: 0; overflow-wrap: anywhere; }
.facts dd { font-size: 1.02rem; font-weight: 600; margin: 0; overflow-wrap: anywhere; }
.facts small { font-weight: 400; color: var(--body-text-color-subdued); font-size: .8rem; }
.note { color: var(--body-text-color-subdued); font-size: .9rem; margin: 4px 0; overflow-wrap: anywhere; }
.wait { border: 2px dashed var(--border-color-primary); border-radius: 12px; padding: 72px 24px;
    text-align: center; color: var(--body-text-color-subdued); }
.wait b { display: block; font-size: 1.1rem; color: var(--body-text-color); margin-bottom: 4px; }
.bar { width: 100%; height: 10px; appearance: none; border: none; border-radius: 5px; overflow: hidden;
    background: var(--border-color-primary); }
.bar::-webkit-progress-bar { background: var(--border-color-primary); }
.bar::-webkit-progress-value { background: var(--color-accent); }
.bar::-moz-progress-bar { background: var(--color-accent); }
.stale::before { content: "The settings have changed: this is the result of those before."; }
.stale::before, .mark { display: block; border-left: 3px solid var(--color-accent); padding: 4px 12px;
    margin-bottom: 8px; }
.stale .facts, .stale table { opacity: .55; }
.failed { border-left: 3px solid #d97706; padding: 4px 12px; margin: 8px 0; overflow-wrap: anywhere; }
.failed.alone { padding: 16px; margin: 0; background: var(--block-background-fill); border-radius: 6px; }
.failed ul { margin: 4px 0 0; padding-left: 18px; }
.scroll { overflow-x: auto; }
table.models { border: none !important; width: 100%; border-collapse: collapse; margin: 0;
    font-variant-numeric: tabular-nums; }
table.speeds td:last-child { width: 100%; }
table.speeds td:last-child div { height: 10px; border-radius: 5px; background: var(--color-accent); }
table.models tr, table.models th, table.models td { border: none !important; background: none !important; }
table.models th, table.models td { padding: 7px 10px !important; text-align: right !important;
    white-space: nowrap; border-bottom: 1px solid var(--border-color-primary) !important; }
table.models th:first-child, table.models td:first-child, table.models th:nth-child(2),
table.models td:nth-child(2) { text-align: left !important; }
.whole img { width: 100%; height: auto; max-height: 80vh; object-fit: contain; }
.pictures .grid-wrap { max-height: none !important; overflow: visible !important; height: auto !important; }
.pictures .fixed-height { min-height: 0 !important; max-height: none !important; }
.pictures .grid-container { height: auto !important; grid-auto-rows: auto !important;
    grid-template-rows: none !important;
    grid-template-columns: repeat(auto-fill, minmax(min(100%, 150px), 1fr)) !important; }
#compare-gallery .grid-container {
    grid-template-columns: repeat(auto-fill, minmax(min(100%, 270px), 1fr)) !important; }
.pictures .thumbnail-lg { aspect-ratio: auto !important; height: auto !important; }
.pictures .thumbnail-lg img { height: auto !important; max-height: 80vh; object-fit: contain; }
/* Gradio's guess from earlier jobs says nothing about this picture; the place in the queue does. */
.eta-bar { display: none !important; }
.halt:disabled { background: none !important; }
#denoise-slider .wrap.full { background: color-mix(in srgb, var(--block-background-fill) 60%, transparent); }
.progress-level { padding: 12px; border-radius: 8px; background: var(--body-background-fill); }
.meta-text, .meta-text-center { font-size: 0 !important; }
.meta-text::before, .meta-text-center::before { content: attr(data-place); font-size: .9rem; }
footer .divider { display: none !important; }
@media (max-width: 640px) {
    .gradio-container .main.fillable { padding: 12px !important; }
    .tab-container button { padding: 0 10px !important; font-size: .95rem; }
    .facts { grid-template-columns: repeat(2, 1fr); }
    .wait { padding: 28px 16px; }
    table.models th, table.models td { padding: 6px 4px !important; font-size: .8rem; }
    table.models:not(.speeds) :is(th, td):nth-child(2) { display: none; }
}
"""

# The page's frame takes its colour from the reader's system alone, so it is set too.
_TOGGLE = """() => {
    document.body.classList.toggle('dark');
    document.body.style.background = 'var(--body-background-fill)';
}"""

# Names for people who hear the page: Gradio has no way to give them to a button or to thumbnails.
_NAMES = """() => {
    const name = () => {
        document.querySelector('#mode')?.setAttribute('aria-label', 'Light or dark');
        for (const picture of document.querySelectorAll('.examples img'))
            if (!picture.alt) picture.alt = 'Example ' + picture.src.split('/').pop();
        for (const place of document.querySelectorAll('.outcome')) place.setAttribute('aria-live', 'polite');
    };
    name();
    new MutationObserver(name).observe(document.body, {childList: true, subtree: true});
}"""

# A result says so where its settings are not those beside it. Where only shares of what is known are others,
# a result of these follows by itself. A job that is stopped leaves the result of before.
_STALE = """() => {
    const fields = (tab) => [...tab.querySelectorAll('.settings input')];
    const value = (field) => ['radio', 'checkbox'].includes(field.type) ? field.checked : field.value;
    const snapshot = (tab) => new Map(fields(tab).map((field) => [field, value(field)]));
    const tabs = new Map();  // of each: what it shows, of which settings, those asked for, and of before
    const state = (tab) => {
        if (!tabs.has(tab)) tabs.set(tab, {of: snapshot(tab), asked: null, before: null, busy: false});
        return tabs.get(tab);
    };
    const others = (tab) => {  // fields of which nothing is known have just come, as they were before
        const {of} = state(tab);
        for (const field of fields(tab)) if (!of.has(field)) of.set(field, value(field));
        return fields(tab).filter((field) => of.get(field) !== value(field));
    };
    const follow = (tab) => {
        const changed = others(tab);
        if (changed.length && changed.every((field) => field.closest('.share')) && !state(tab).busy
            && tab.querySelector('.result.adjustable')) tab.querySelector('.adjust').click();
    };
    const show = () => {
        for (const tab of document.querySelectorAll('[role=tabpanel]')) {
            const place = tab.querySelector('.outcome'), known = state(tab);
            const result = place?.querySelector('.result, .failed') ?? null;
            const number = result && (result.dataset.number ?? result);  // an element may be used again
            if (number !== known.number) {
                known.number = number;
                if (result && known.asked) Object.assign(known, {of: known.asked, asked: null, busy: false});
                if (result) follow(tab);
            }
            place?.classList.toggle('stale', !!place.querySelector('.result') && others(tab).length > 0);
        }
    };
    const listen = (event, place, work) => document.addEventListener(event, ({target}) => {
        const tab = target.closest('[role=tabpanel]');
        if (tab && target.closest(place)) work(tab);
        show();
    });
    listen('input', '.settings', () => {});
    const soon = (tab) => setTimeout(() => { follow(tab); show(); }, 100);  // when all fields have the value
    listen('change', '.share', soon);
    listen('click', '.settings .reset-button', soon);
    listen('click', '.adjust', (tab) => { state(tab).asked = snapshot(tab); });
    listen('click', '.go', (tab) => {
        const known = state(tab), now = snapshot(tab);
        Object.assign(known, {before: known.of, of: now, asked: now, busy: true});
        if (innerWidth <= 640) tab.querySelector('.results').scrollIntoView({behavior: 'smooth'});
    });
    listen('click', '.halt', (tab) => {
        const known = state(tab);
        Object.assign(known, {of: known.before ?? known.of, asked: null, before: null, busy: false});
        tab.querySelector('.go').focus();  // this button has had its use
    });
    const seen = {childList: true, subtree: true, characterData: true, attributeFilter: ['data-number']};
    new MutationObserver(show).observe(document.body, seen);
}"""

# A list of options is no field of the browser, which would tell that it changed.
_CHOSEN = """() => {
    document.querySelector('#latents-settings').dispatchEvent(new Event('input', {bubbles: true}));
}"""

# The place in the queue, in words, to where CSS shows it.
_PLACES = """() => {
    const name = () => {
        for (const line of document.querySelectorAll('.meta-text, .meta-text-center')) {
            const [, place] = line.textContent.match(/queue: (\\d+)\\//) ?? [];
            const words = place ? `Place ${place} in the queue` : '';
            if (line.dataset.place === words) continue;
            line.dataset.place = words;
            line.role = 'status';
            line.ariaLabel = words;
        }
    };
    new MutationObserver(name).observe(document.body, {childList: true, subtree: true, characterData: true});
}"""


class _StoppedError(ZenithError):
    """Nobody wants the result of this job any more."""


class _View:
    """What a tab of one window holds and shows, and its job. Jobs wait in a queue: what comes late asks here.

    Attributes
    ----------
    shown : the file of which a result is there.
    pictured : whether there is a picture.
    moved : whether there are other files than those of the job; only in tabs of many.
    """

    def __init__(self, workshop: Workshop) -> None:
        self.shown: str | None = None
        self.pictured = self.moved = False
        self._workshop = workshop
        self._lock = threading.Lock()  # presses and jobs are in different threads
        self._file: str | None = None
        self._gone: set[str | None] = set()
        self._presses = 0
        self._wanted: int | None = None  # the press of which a job waits or is at work
        self._job: tuple[str | None, threading.Event] | None = None

    def turn(self, file: str | None) -> None:
        """Another file is there, or none: a job of the one before has no use."""
        with self._lock:
            if file != self._file:
                self._workshop.forget(self._file)
            self._gone = (self._gone | {self._file}) - {file}
            self._file = file
            if self.shown != file:  # else its job was faster than this
                self.shown, self.pictured = None, False
            if self._job and self._job[0] != file:
                self._job[1].set()

    def has_gone(self, file: str | None) -> bool:
        return file in self._gone

    @property
    def is_busy(self) -> bool:
        """Whether a job is wanted that waits or is at work."""
        return self._wanted is not None

    def press(self) -> int:
        """A job is asked for; returns the number by which it is known. Those before are not wanted."""
        with self._lock:
            self._presses += 1
            self._wanted, self.moved = self._presses, False
            if self._job:
                self._job[1].set()
            return self._presses

    def stop(self) -> bool:
        """No job is wanted; returns whether one is at work."""
        with self._lock:
            self._wanted = None
            if self._job:
                self._job[1].set()
            return self._job is not None

    def begin(self, press: int, file: str | None = None) -> threading.Event:
        """A job has its turn; the flag, which may be set from the beginning, says when to stop."""
        flag = threading.Event()
        with self._lock:
            self._job = file, flag
            if press != self._wanted or self.has_gone(file):
                flag.set()
        return flag

    def end(self, press: int) -> None:
        with self._lock:
            self._job = None
            if press == self._wanted:
                self._wanted = None


class _Views:
    """The view of a tab in each window. The job of a window that closes stops."""

    def __init__(self, page: gr.Blocks, workshop: Workshop) -> None:
        self._views: dict[str, _View] = {}
        self._workshop = workshop
        page.unload(self._leave)

    def of(self, request: gr.Request) -> _View:
        """For what happens in a window, which makes its view."""
        return self._views.setdefault(str(request.session_hash), _View(self._workshop))

    def still(self, request: gr.Request) -> _View | None:
        """For what had to wait, while its window may have closed."""
        return self._views.get(str(request.session_hash))

    def press(self, request: gr.Request) -> int:
        return self.of(request).press()

    def _leave(self, request: gr.Request) -> None:
        if view := self._views.pop(str(request.session_hash), None):
            view.stop()
            view.turn(None)


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
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
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
            mode = gr.Button("◐", elem_id="mode", size="sm")
        mode.click(None, js=_TOGGLE, **PRIVATE)
        page.load(None, js=_NAMES, **PRIVATE)
        page.load(None, js=_STALE, **PRIVATE)
        page.load(None, js=_PLACES, **PRIVATE)
        with gr.Tabs(elem_id="tabs"):
            with gr.Tab("Denoise", id="denoise"):
                _denoise_tab(page, workshop, noisy)
            with gr.Tab("Latents", id="latents"):
                _latents_tab(page, workshop, clean)
            with gr.Tab("Batch", id="batch"):
                _batch_tab(page, workshop)
            with gr.Tab("Compare", id="compare"):
                _compare_tab(page, workshop, clean[:1])
        _endpoints(workshop)
    # Gradio's /run and /api go past the queue: whoever asks there has a job at once, and any number of them.
    page.queue(max_size=64, default_concurrency_limit=2, api_open=False)
    return page


def _for_api(workshop: Workshop, work: Callable) -> Callable:
    """``work`` whose every failure is an error of one line for the client."""

    def complain(error: Exception) -> Any:
        raise gr.Error(workshop.describe(error), print_exception=False) from None

    return _guarded(work, complain)


def _for_page(workshop: Workshop, work: Callable, place: gr.HTML, blank: Callable[[], Updates]) -> Callable:
    """``work`` whose every failure is one line at ``place``, where the result would be.

    ``blank`` gives the updates that take away what an earlier picture left.
    """

    def complain(error: Exception) -> Updates:
        text = html.escape(workshop.describe(error))
        return blank() | {place: f"<div class='failed alone' role=alert>{text}</div>"}

    return _guarded(work, complain)


def _for_file(
    workshop: Workshop,
    views: _Views,
    work: Callable,
    place: gr.HTML,
    blank: Callable[[], Updates],
    idle: Callable[[], Updates] = dict,
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
                raise _StoppedError
            if 0 < share < 1:  # else it may be over before anybody sees it
                progress(share, desc="Working")

        def unless_stopped() -> Updates:
            nonlocal failed
            try:
                report(0)
                updates: Updates = work(report, file, *settings)
            except _StoppedError:
                return {}
            failed = False
            return updates

        updates: Updates = _for_page(workshop, unless_stopped, place, blank)()
        if flag.is_set() or view.has_gone(file):
            updates = {place: gr.skip()}
        else:
            view.shown, view.pictured = file, not failed
        view.end(press)
        return updates if view.is_busy else updates | idle()

    return run


def _guarded(work: Callable, complain: Callable[[Exception], Any]) -> Callable:
    """``work``, a function or a generator, whose failures end in what ``complain`` returns or raises."""

    @functools.wraps(work)
    def run(*values: Any) -> Any:
        try:
            return work(*values)
        except Exception as error:
            return complain(error)

    @functools.wraps(work)
    def stream(*values: Any) -> Iterator[Any]:
        try:
            yield from work(*values)
        except Exception as error:
            yield complain(error)

    return stream if inspect.isgeneratorfunction(work) else run


class _Buttons:
    """The button that starts a tab's job, the one that ends it, and where the number of a press is kept."""

    def __init__(self, views: _Views, label: str, tab: str) -> None:
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


def _drop(label: str, kinds: list[str] | None, many: bool = False) -> gr.File:
    return gr.File(label=label, file_count="multiple" if many else "single", file_types=kinds,
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
                      info="5 is faint, 25 is clearly visible, 50 is heavy.")  # fmt: skip
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


def _settings(*values: float | None) -> dict[str, Any]:
    """What a denoising job is told; of a field that was left empty, what holds without it."""
    usual = {"strength": 1.0, "luma": 1.0, "chroma": 1.0, "grain": 0.0, "passes": 1}
    return {k: usual[k] if value is None else value for k, value in zip(usual, values, strict=True)}


def _level(sigma: float | None) -> float | None:
    """A noise level of the API, where a negative one, or none, is to be estimated."""
    return None if sigma is None or sigma < 0 else sigma


# ---- Denoise ----------------------------------------------------------------------------------------


def _denoise_tab(page: gr.Blocks, workshop: Workshop, examples: Sequence[Path]) -> None:
    views = _Views(page, workshop)
    with gr.Row():
        with gr.Column(scale=4, min_width=300):
            file = _drop("A picture", [*PICTURES, ".zip"])  # to be told where a ZIP goes
            _examples(workshop, examples, file, "Or try one of these")
            with gr.Column(elem_id="denoise-settings", elem_classes="settings"):
                controls = _noise_controls()
            buttons = _Buttons(views, "Denoise", "denoise")
            adjust = gr.Button("Adjust", visible="hidden", elem_classes="adjust")
        with gr.Column(scale=7, min_width=300, elem_classes="results"):
            wait = gr.HTML(_wait("Your picture appears here", "Drop one, or click an example."))
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
        return {facts: gr.skip()} if view.shown else blank() | {wait: gr.HTML(visible=not file), facts: ""}

    def look(view: _View, file: str, model: str) -> Updates:
        result = workshop.inspect(file, model)
        view.pictured = not view.has_gone(file)
        before = result.files["before"]
        updates = blank() | {
            slider: gr.ImageSlider(value=(before, before), visible=True),
            facts: _facts(_what(result.facts), _noise_fact(result.facts)),
        }
        if (sigma := result.facts.get("sigma")) is not None:  # where it begins if somebody takes over by hand
            updates[level] = min(100.0, round(sigma * 2) / 2)
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
        result = workshop.denoise(file, model, None if auto else sigma, report, True, **_settings(*settings))
        found, files = result.facts, result.files
        cards = _facts(_what(found), _noise_fact(found), _time(found))
        adjustable = " adjustable" if found.get("adjustable") else ""
        sharpened = sharpens(model)
        note = f"The difference, amplified {found['gain']} times; middle grey is unchanged. "
        note += (
            "Edges in it are what makes the picture sharp."
            if sharpened
            else "Edges or texture in it would be detail that was lost."
        )
        return {
            wait: gr.HTML(visible=False),
            slider: gr.ImageSlider(value=(files["before"], files["after"]), visible=True),
            facts: f"<div class='result{adjustable}' data-number={next(numbers)}>{cards}</div>"
            + _notes(found),
            get: _download(found, files["picture"]),
            more: gr.Accordion("What was changed" if sharpened else "What was removed", visible=True),
            removed: files["removed"],
            removed_note: f"<p class=note>{note}</p>",
        }

    file.change(turn, file, outputs, **AT_ONCE, **PRIVATE).then(
        show, [file, model], [*outputs, level], show_progress_on=facts, **DEVICE, **PRIVATE
    )
    work = _for_file(workshop, views, run, facts, blank, buttons.idle)
    for button, following in ((buttons.go, True), (adjust, False)):
        button.click(
            press, None, [buttons.pressed, buttons.stop, wait, facts], **LATEST, **AT_ONCE, **PRIVATE
        ).then(
            work, [buttons.pressed, file, *controls], [*outputs, buttons.stop], scroll_to_output=following,
            show_progress_on=[slider, wait], show_progress="full" if following else "minimal",
            **LATEST, **DEVICE, **PRIVATE,
        )  # fmt: skip


# ---- Latents ----------------------------------------------------------------------------------------


def _latents_tab(page: gr.Blocks, workshop: Workshop, examples: Sequence[Path]) -> None:
    names, views = shipped_models("autoencoder"), _Views(page, workshop)
    with gr.Row():
        with gr.Column(scale=4, min_width=300):
            file = _drop("A picture, or a latent file", [*PICTURES, ".safetensors"])
            _examples(workshop, examples, file, "Or try one of these")
            with gr.Column(elem_id="latents-settings", elem_classes="settings"):
                model = gr.Dropdown(list(names), value=names[0] if names else None, label="Model",
                                    info="For pictures. A latent file names its own model.")  # fmt: skip
                formats = sorted(BITS, key=lambda name: BITS[name])
                dtype = gr.Radio([(f"{BITS[name]} bit", name) for name in formats], value="fp16",
                                 label="Numbers", info="8 bit is a quarter of 32, and close.")  # fmt: skip
            buttons = _Buttons(views, "Encode and decode", "latents")
        with gr.Column(scale=7, min_width=300, elem_classes="results"):
            wait = gr.HTML(_wait("A picture becomes latents and comes back",
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
            _what(found),
            ("Model", f"{short(found['model'])}{numbers}"),
            *([] if decode else [_close(found)]),
            _size(found),
            _time(found),
        ]
        shape = found["latent_shape"]
        words = f"{shape[1]} channels of {shape[3]} × {shape[2]}: blue below, orange above a channel's mean."
        updates = blank() | {
            facts: f"<div class=result>{_facts(*cards)}</div>" + _notes(found),
            get: _download(found, files["picture"], "picture"),
            grid: gr.Accordion(visible=True),
            channels: files["channels"],
            grid_note: f"<p class=note>{words}</p>",
        }
        if decode:
            return updates | {decoded: gr.Image(value=files["after"], visible=True)}
        name = f"Download latents ({_bytes(found['latent_bytes'])})"
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
    views = _Views(page, workshop)
    with gr.Row():
        with gr.Column(scale=4, min_width=300):
            files = _drop("Pictures, or a ZIP of them", None, many=True)
            with gr.Column(elem_classes="settings"):
                controls = _noise_controls()
            go = gr.Button("Denoise all", variant="primary", size="lg", elem_id="batch-go",
                           elem_classes="go")  # fmt: skip
            stop = gr.Button("Cancel", visible=False, variant="stop", elem_id="batch-stop")
            pressed = gr.Number(visible=False)
        with gr.Column(scale=7, min_width=300, elem_classes="results"):
            waiting = _wait("Many pictures at once", "You get a ZIP with the same names and formats.")
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
                raise _StoppedError

        try:
            if flag.is_set():  # while it waited; the page says so already
                yield {status: gr.skip()}
                return
            for state in workshop.batch(files, model, level, flag.is_set, look, **_settings(*settings)):
                begins = not state.done and not state.share
                new = state.finished or begins or len(state.thumbnails) >= shown + (1 if shown < 8 else 8)
                shown = len(state.thumbnails) if new else shown
                updates: Updates = {
                    status: (_OTHER_FILES if view.moved else "") + _batch_status(state),
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


def _batch_status(state: BatchState) -> str:
    done, total, left, good = state.done, state.total, state.seconds_left, state.good
    parts = [f'<progress class=bar max="{total}" value="{done + state.share:g}"></progress>']
    rate = state.megapixels / state.seconds if state.seconds > 0 else 0
    if state.finished:
        word = "Cancelled" if state.cancelled else "Done"
        text = f"{word}: {good} of {total} pictures in {_seconds(state.seconds)}"
        rest = f", {total - done} not started" if done < total else ""
        parts.append(f"<p class=result><b>{text}</b>{rest}</p>")
    else:
        text = f"{done} of {total}, now {html.escape(state.current)}"
        rest = "" if left is None else f", about {_seconds(max(1.0, round(left)))} to go"
        parts.append(f"<p><b>{text}</b>{rest}</p>")
    if good:
        speed = f"{_digits(rate, 2)} megapixels per second"
        parts.append(f"<p class=note>{speed}, reading and writing included</p>")
    if state.left_out:
        words = "file was" if state.left_out == 1 else "files were"
        parts.append(f"<p class=note>{state.left_out} other {words} left out of the ZIP</p>")
    if state.notes:
        shown = state.shown(state.notes)
        lines = "".join(f"<li>{html.escape(f'{name}: {note}')}</li>" for name, note in shown)
        parts.append(f"<div class=note><ul>{lines}</ul></div>")
    if state.failed:
        lines = "".join(f"<li>{html.escape(text)}</li>" for _, text in state.shown(state.failed))
        parts.append(f"<div class=failed><b>{len(state.failed)} failed</b><ul>{lines}</ul></div>")
    return "".join(parts)


def _zip_label(state: BatchState) -> str:
    return f"Download the ZIP ({_bytes(Path(str(state.archive)).stat().st_size)})"


# ---- Compare ----------------------------------------------------------------------------------------


def _compare_tab(page: gr.Blocks, workshop: Workshop, examples: Sequence[Path]) -> None:
    views = _Views(page, workshop)
    names = [*shipped_models("denoiser"), *shipped_models("autoencoder")]
    with gr.Row():
        with gr.Column(scale=4, min_width=300):
            file = _drop("A clean picture", PICTURES)
            _examples(workshop, examples, file, "Or try this one")
            with gr.Column(elem_classes="settings"):
                models = gr.CheckboxGroup(names, value=names, label="Models")
                sigma = gr.Slider(0, 75, 25, step=1, label="Noise to add",
                                  info="Denoisers get the picture with this noise.")  # fmt: skip
            buttons = _Buttons(views, "Compare", "compare")
        with gr.Column(scale=7, min_width=300, elem_classes="results"):
            wait = gr.HTML(_wait("Every model on one picture", "Side by side, with time and quality."))
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
                caption = f"{short(key)}: {_decibels(rows[key]['psnr'])}"
            elif key == "noisy":
                caption = f"with noise {result.facts['sigma']:g}: {_decibels(result.facts['noisy_psnr'])}"
            elif key == "soft":
                caption = f"blurred: {_decibels(result.facts['soft_psnr'])}"
            else:
                caption = "original"
            shown.append((path, caption))
        return blank() | {gallery: gr.Gallery(value=shown, visible=True), table: _table(result)}

    def bench() -> Iterator[Updates]:
        yield {chart: "<p class=note>Measuring …</p>"}
        yield {chart: _bars(workshop.benchmark())}

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


def _bars(speeds: Sequence[tuple[str, float]]) -> str:
    """Megapixels per second of (model, number) as bars, the fastest first."""
    most = max(speed for _, speed in speeds)
    rows = "".join(
        f"<tr><td>{name}</td><td>{speed:g}</td>"
        f"<td><div style='width: {100 * speed / most:.1f}%'></div></td></tr>"
        for name, speed in sorted(speeds, key=lambda one: -one[1])
    )
    head = "<tr><th>Model</th><th>MP/s</th><th></th></tr>"
    return f"<table class='models speeds'>{head}{rows}</table>"


def _table(result: Result) -> str:
    head = "".join(f"<th>{t}</th>" for t in ("Model", "Does", "PSNR, dB", "SSIM", "Time", "MP/s"))
    rows = "".join(
        f"<tr><td>{short(r['model'])}</td><td>{r['does']}</td><td>{_decibels(r['psnr'], '')}</td>"
        f"<td>{r['ssim']:.4f}</td><td>{_seconds(r['seconds'])}</td><td>{r['megapixels_per_second']:g}</td></tr>"
        for r in result.facts["rows"]
    )
    note = "Higher PSNR and SSIM are closer to the original; MP/s are megapixels per second."
    if result.facts["cut"]:
        note += f" Measured on the middle {result.facts['width']} × {result.facts['height']} pixels."
    table = f"<table class=models><tr>{head}</tr>{rows}</table>"
    return f"<div class='scroll result'>{table}</div><p class=note>{note}</p>"


# ---- endpoints --------------------------------------------------------------------------------------


def _endpoints(workshop: Workshop) -> None:
    """The API: each endpoint takes files and settings, and gives files and a JSON object of facts."""
    denoisers, autoencoders = shipped_models("denoiser"), shipped_models("autoencoder")
    with gr.Row(visible=False):
        picture = gr.File(label="picture", type="filepath")
        several = gr.File(label="pictures or ZIP files", file_count="multiple", type="filepath")
        denoiser = gr.Dropdown(list(denoisers), value=denoisers[0] if denoisers else None, label="model")
        autoencoder = gr.Dropdown(list(autoencoders), label="model",
                                  value=autoencoders[0] if autoencoders else None)  # fmt: skip
        chosen = gr.CheckboxGroup(
            [*denoisers, *autoencoders], value=[*denoisers, *autoencoders], label="models"
        )
        sigma = gr.Number(-1, minimum=-1, maximum=255, label="noise level, 0 to 255; -1 estimates it")
        added = gr.Number(25, minimum=0, maximum=255, label="noise to add for denoisers")
        settings: list[Any] = [
            gr.Number(value, minimum=0, maximum=1, label=f"{name}, 0 to 1")
            for name, value in (("strength", 1), ("luma", 1), ("chroma", 1), ("grain", 0))
        ]
        settings.append(gr.Radio(list(PASSES), value=1, label="passes"))
        dtype = gr.Radio(list(DTYPES), value="fp16", label="number format of the latents")
        file, facts = gr.File(label="result"), gr.JSON(label="facts")
        second = gr.File(label="latents")
        trigger = gr.Button()

    def denoise(
        picture: str,
        model: str | None,
        sigma: float | None = -1,
        strength: float | None = 1,
        luma: float | None = 1,
        chroma: float | None = 1,
        grain: float | None = 0,
        passes: int | None = 1,
    ) -> tuple[str, dict]:
        """Remove noise; the file keeps its format, size, mode and bit depth."""
        settings = _settings(strength, luma, chroma, grain, passes)
        result = workshop.denoise(picture, model or denoisers[0], _level(sigma), **settings)
        return result.files["picture"], result.facts

    def encode(picture: str, model: str | None, dtype: str | None = "fp16") -> tuple[str, dict]:
        """Encode a picture to a latent file."""
        result = workshop.encode(picture, model or autoencoders[0], dtype or "fp16")
        return result.files["latents"], result.facts

    def decode(latents: str) -> tuple[str, dict]:
        """Decode a latent file to a PNG."""
        result = workshop.decode(latents)
        return result.files["picture"], result.facts

    def roundtrip(picture: str, model: str | None, dtype: str | None = "fp16") -> tuple[str, str, dict]:
        """Encode and decode; the picture, its latent file, and how close they are."""
        result = workshop.roundtrip(picture, model or autoencoders[0], dtype or "fp16")
        return result.files["picture"], result.files["latents"], result.facts

    def batch(
        pictures: list[str],
        model: str | None,
        sigma: float | None = -1,
        strength: float | None = 1,
        luma: float | None = 1,
        chroma: float | None = 1,
        grain: float | None = 0,
        passes: int | None = 1,
    ) -> Iterator[tuple[str | None, dict]]:
        """Denoise many pictures or ZIP files; progress on the way, a ZIP at the end."""
        settings = _settings(strength, luma, chroma, grain, passes)
        for state in workshop.batch(
            pictures, model or denoisers[0], _level(sigma), lambda: False, **settings
        ):
            lists = {"failed": state.shown(state.failed), "notes": state.shown(state.notes)}
            report = {k: v for k, v in vars(state).items() if k not in ("thumbnails", "archive")} | lists
            yield state.archive, report

    def compare(picture: str, models: list[str], sigma: float | None = 25) -> dict:
        """PSNR, SSIM and time of models on one picture."""
        return workshop.compare(picture, models, sigma).facts

    def benchmark() -> dict[str, float]:
        """Megapixels per second of every model on this machine."""
        return dict(workshop.benchmark())

    def models() -> dict[str, list[str]]:
        """Names of the models."""
        return {"denoiser": list(denoisers), "autoencoder": list(autoencoders)}

    for work, inputs, outputs in (
        (denoise, [picture, denoiser, sigma, *settings], [file, facts]),
        (encode, [picture, autoencoder, dtype], [file, facts]),
        (decode, [picture], [file, facts]),
        (roundtrip, [picture, autoencoder, dtype], [file, second, facts]),
        (batch, [several, denoiser, sigma, *settings], [file, facts]),
        (compare, [picture, chosen, added], [facts]),
        (benchmark, [], [facts]),
        (models, [], [facts]),
    ):
        description = inspect.getdoc(work)
        trigger.click(_for_api(workshop, work), inputs, outputs, api_name=work.__name__,
                      api_description=description, **DEVICE)  # fmt: skip


# ---- words ------------------------------------------------------------------------------------------


def _wait(title: str, text: str) -> str:
    return f"<div class=wait><b>{title}</b>{text}</div>"


def _facts(*items: tuple[str, str]) -> str:
    """Pairs of (what, value as HTML) as small cards."""
    return "<dl class=facts>" + "".join(f"<div><dt>{a}</dt><dd>{b}</dd></div>" for a, b in items) + "</dl>"


def _what(facts: dict[str, Any]) -> tuple[str, str]:
    mode = WORDS.get(facts["mode"], facts["mode"])
    kind = f"{facts['format'] or ''} {mode}, {facts['bits']} bit".strip()
    return html.escape(
        facts["name"]
    ), f"{facts['width']} × {facts['height']} <small>{html.escape(kind)}</small>"


def _noise_fact(facts: dict[str, Any]) -> tuple[str, str]:
    if "sigma" not in facts:
        return "Noise level", "not known"
    level = facts["sigma"]
    bounds = ((2, "hardly any"), (8, "faint"), (20, "visible"), (40, "strong"), (256, "very strong"))
    words = next(word for bound, word in bounds if level < bound or bound == 256)
    return "Noise level" + (
        " found" if facts.get("estimated", True) else ""
    ), f"{level:.1f} <small>{words}</small>"


def _time(facts: dict[str, Any]) -> tuple[str, str]:
    speed = f"{facts['megapixels_per_second']:g} megapixels/s"
    if facts.get("remembered"):
        speed = "without the network"
    return "Time", f"{_seconds(facts['seconds'])} <small>{speed}</small>"


def _digits(number: float, count: int) -> str:
    """A number with so many digits, and no power of ten in any that is shown here."""
    return f"{float(f'{number:.{count}g}'):g}"


def _decibels(psnr: float, unit: str = " dB") -> str:
    return "equal" if psnr >= EQUAL else f"{psnr:.2f}{unit}"


def _close(facts: dict[str, Any]) -> tuple[str, str]:
    return "Closeness", f"{_decibels(facts['psnr'])} <small>PSNR, SSIM {facts['ssim']:.3f}</small>"


def _size(facts: dict[str, Any]) -> tuple[str, str]:
    size = _bytes(facts["latent_bytes"])
    return "Latents", f"{_digits(facts['bits_per_pixel'], 3)} <small>bits per pixel, {size}</small>"


def _notes(facts: dict[str, Any]) -> str:
    notes = [*facts.get("notes", [])]
    if facts["pictures"] > 1:
        notes.append(f"all {facts['pictures']} pictures in the file are done; the first is shown")
    if facts.get("shown", 1) < 1:
        notes.append(f"shown here at {facts['shown']:.0%} of its size; the download has every pixel")
    return "".join(f"<p class=note>Note: {html.escape(note)}.</p>" for note in notes)


def _download(facts: dict[str, Any], path: str, what: str | None = None) -> gr.DownloadButton:
    label = f"Download {what or facts['output']} ({_bytes(facts['output_bytes'])})"
    return gr.DownloadButton(label, value=path, visible=True)


def _seconds(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def _bytes(size: int) -> str:
    if size >= 2**20 - 2**9:
        return f"{size / 2**20:.1f} MB"
    return f"{max(1, round(size / 1024))} KB"
