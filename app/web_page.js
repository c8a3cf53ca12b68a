// What the page does in the browser by itself. Gradio calls this function when the page is there.
() => {
    document.documentElement.lang = 'en';  // whatever the reader's language: hardly a word is Gradio's
    const watch = (work, what) => {
        work();
        new MutationObserver(work).observe(document.body, {childList: true, subtree: true, ...what});
    };

    // The button with the half-filled circle. The page's frame takes its colour from the reader's system
    // alone, so it is set too.
    document.addEventListener('click', ({target}) => {
        if (!target.closest('#mode')) return;
        document.body.classList.toggle('dark');
        document.body.style.background = 'var(--body-background-fill)';
    });

    // A number that is deleted is the usual one again; Gradio would take the least, and a strength of 0.
    document.addEventListener('blur', ({target}) => {
        if (!target.matches?.('.settings input[type=number]') || target.value !== '') return;
        const reset = target.parentElement.querySelector('.reset-button');
        setTimeout(() => reset?.click());
    }, true);

    const spoken = {before: 'Before', after: 'After', decoded: 'Decoded', removed: 'The difference',
        difference: 'The difference', channels: 'Latent channels'};
    // Names for people who hear the page: Gradio has no way to give them to a button or to thumbnails.
    watch(() => {
        document.querySelector('#mode')?.setAttribute('aria-label', 'Light or dark');
        for (const picture of document.querySelectorAll('.examples img'))
            if (!picture.alt) picture.alt = 'Example ' + picture.src.split('/').pop();
        // What the browser's dialog offers at first. All that is chosen is taken: its content tells what it is.
        for (const field of document.querySelectorAll('input[type=file]:not([multiple], [accept])'))
            field.accept = 'image/*,ENDINGS';
        for (const place of document.querySelectorAll('.outcome')) place.setAttribute('aria-live', 'polite');
        for (const shown of document.querySelectorAll('.results img')) {
            const name = spoken[shown.src.match(/\/(\w+)\.(png|jpg)$/)?.[1]];
            if (!name) continue;
            shown.alt = name;
            shown.closest('button')?.setAttribute('aria-label', name);
        }
    });

    // Files that are too large are left out here: Gradio would refuse all, in words that go after ten seconds.
    // And of several, where it takes one, all but the first, of which it would not say a word.
    const most = window.gradio_config?.max_file_size ?? Infinity;
    const sorted = (files, block) => {
        const large = [...files].filter((file) => file.size > most);
        const fit = [...files].filter((file) => file.size <= most);
        const more = block?.matches('.many') ? [] : fit.splice(1);
        return {fit, large, more};
    };
    const fitting = (files, block) => {
        const {fit, large, more} = sorted(files, block), kept = new DataTransfer();
        block?.parentElement.querySelector('.left-out')?.remove();
        if (fit.length === files.length) return files;
        const note = document.createElement('p');
        note.className = 'failed left-out';
        note.role = 'alert';
        const names = (why, some) => some.length ? [`${why}: ${some.map((file) => file.name).join(', ')}`] : [];
        note.textContent = [
            ...names(`Left out, larger than ${Math.floor(most / 2 ** 20)} MB`, large),
            ...names('Left out, since only Batch takes several', more),
        ].join('. ');
        block?.after(note);
        for (const file of fit) kept.items.add(file);
        return kept.files;
    };
    document.addEventListener('change', (event) => {
        const {target} = event;
        if (!target.matches?.('input[type=file]')) return;
        const files = fitting(target.files, target.closest('.block'));
        if (files.length === target.files.length) return;
        target.files = files;
        if (!files.length) event.stopImmediatePropagation();
    }, true);
    document.addEventListener('drop', (event) => {
        const files = event.dataTransfer?.files ?? [];
        const block = event.target.closest?.('.block'), field = block?.querySelector('input[type=file]');
        const there = block?.querySelector('td.filename');  // where Gradio would do nothing
        if (!files.length || !(field ? sorted(files, block).fit.length < files.length : there)) return;
        event.preventDefault();
        event.stopPropagation();
        if (!field) return take(files);
        field.files = files;
        field.dispatchEvent(new Event('change', {bubbles: true}));
    }, true);

    // The handle between before and after by the keyboard: Gradio knows a mouse and fingers only.
    const place = (handle) => {
        const line = handle.querySelector('.inner').getBoundingClientRect();
        const frame = handle.parentElement.getBoundingClientRect();
        return {frame, x: line.x + line.width / 2, y: line.y + line.height / 2};
    };
    const tell = (handle) => {
        const {frame, x} = place(handle);
        handle.ariaValueNow = Math.round(100 * (x - frame.x) / frame.width) || 0;
    };
    watch(() => {
        for (const handle of document.querySelectorAll('.outer[data-testid=slider]:not([tabindex])')) {
            handle.tabIndex = 0;
            Object.assign(handle, {role: 'slider', ariaLabel: 'Line between before and after',
                ariaValueMin: 0, ariaValueMax: 100});
            tell(handle);
        }
    });
    document.addEventListener('focusin', ({target}) => {
        if (target.matches('.outer[data-testid=slider]')) tell(target);
    });
    document.addEventListener('keydown', (event) => {
        if (!event.target.matches?.('.outer[data-testid=slider]')) return;
        const handle = event.target, {frame, x, y} = place(handle), step = frame.width / 20;
        const to = {ArrowLeft: x - step, ArrowRight: x + step, Home: frame.left, End: frame.right}[event.key];
        if (to === undefined) return;
        event.preventDefault();
        const mouse = (where, what, clientX) =>
            where.dispatchEvent(new MouseEvent(what, {bubbles: true, view: window, clientX, clientY: y}));
        mouse(handle.querySelector('.inner'), 'mousedown', x);
        mouse(window, 'mousemove', to);
        mouse(window, 'mouseup', to);
        setTimeout(tell, 50, handle);
    });

    // A picture that is dropped beside its place is taken all the same: the browser would leave the page for it.
    const carries = (event) => event.dataTransfer?.types.includes('Files');
    document.addEventListener('dragover', (event) => { if (carries(event)) event.preventDefault(); });
    document.addEventListener('drop', (event) => {
        if (!carries(event) || event.defaultPrevented) return;
        event.preventDefault();
        take(event.dataTransfer.files);
    });
    document.addEventListener('paste', (event) => {  // a screenshot, say
        const {files} = event.clipboardData;
        if (files.length && !event.target.matches('input, textarea')) take(files);
    });
    const take = (files) => {
        const tab = [...document.querySelectorAll('[role=tabpanel]')].find((panel) => panel.offsetParent);
        const block = tab?.querySelector('.block:has(input[type=file], td.filename)');
        if (!fitting(files, block).length) return;  // and what is there stays
        const kept = new DataTransfer();  // an event's own files are gone when it is over
        for (const file of files) kept.items.add(file);
        const give = (tries) => {
            const field = tab?.querySelector('input[type=file]');
            // The server has to know first that the picture of before is gone.
            if (field && !(cleared && tries && tab.querySelector('.outcome .facts'))) {
                field.files = kept.files;
                field.dispatchEvent(new Event('change', {bubbles: true}));
            } else if (tries) setTimeout(give, 50, tries - 1);
        };
        const cleared = !tab?.querySelector('input[type=file]');
        // Gradio says "Clear" in the reader's language.
        if (cleared) block?.querySelector('.icon-button-wrapper button')?.click();
        give(200);
    };

    // The place in the queue, in words, to where CSS shows it.
    watch(() => {
        for (const line of document.querySelectorAll('.meta-text, .meta-text-center')) {
            const [, place] = line.textContent.match(/queue: (\d+)\//) ?? [];
            const words = place ? `Place ${place} in the queue` : '';
            if (line.dataset.place === words) continue;
            line.dataset.place = words;
            line.role = words ? 'status' : null;
            line.ariaLabel = words || null;
        }
    }, {characterData: true});

    // A result says so where its settings are not those beside it. Where only shares of what is known are
    // others, a result of these follows by itself. A job that is stopped leaves the result of before.
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
            const shown = !!place?.querySelector('.result');
            const stale = shown && !place.querySelector('.result.fixed') && others(tab).length > 0;
            place?.classList.toggle('stale', stale);
            place?.classList.toggle('earlier', shown && known.busy && !stale);
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
    listen('click', '.adjust', (tab) => {
        state(tab).asked = snapshot(tab);
        tab.querySelector('.results').classList.remove('halted');
    });
    listen('click', '.go', (tab) => {
        const known = state(tab), now = snapshot(tab);
        Object.assign(known, {before: known.of, of: now, asked: now, busy: true});
        tab.querySelector('.results').classList.remove('halted');
        if (innerWidth <= 640) tab.querySelector('.results').scrollIntoView({behavior: 'smooth'});
    });
    listen('click', '.halt', (tab) => {
        const known = state(tab);
        Object.assign(known, {of: known.before ?? known.of, asked: null, before: null, busy: false});
        tab.querySelector('.results').classList.add('halted');  // one that waits ends when its turn comes
        tab.querySelector('.go').focus();  // this button has had its use
    });
    watch(show, {characterData: true, attributeFilter: ['data-number']});
}
