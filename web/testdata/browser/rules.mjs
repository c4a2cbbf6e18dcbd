// The cases of lines and zones.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import {Console, given} from './page.mjs';
import {check, until} from './views.mjs';

const STREAM = `${given.url}/v2/streams/digits`;

const state = async () => (await fetch(STREAM)).json();

/** Waits until the stream has an event of the kind, and returns the event. */
async function event(type, rule) {
  const end = new AbortController(),
    reply = await fetch(`${STREAM}/results`, {headers: {Accept: 'application/x-ndjson'}, signal: end.signal});
  let text = '';
  try {
    for await (const part of reply.body.pipeThrough(new TextDecoderStream())) {
      text += part;
      const lines = text.split('\n');
      text = lines.pop();
      for (const line of lines.filter(Boolean)) {
        const found = (JSON.parse(line).outputs ?? []).find(o => o.name === 'events');
        const events = (found?.data ?? []).map(data => JSON.parse(data));
        const match = events.find(e => e.type === type && e.rule === rule);
        if (match) return match;
      }
    }
  } finally {
    end.abort();
  }
  throw new Error(`the results ended without ${type} of ${rule}`);
}

const clip = async id => fetch(`${given.url}/v2/clips/${id}`);

/** The pixels of the boxes that are over the video, and the time of the video. */
const drawn = c =>
  c.page.evaluate(() => {
    const video = document.querySelector('.player video'),
      canvas = document.querySelector('.player canvas');
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return {at: video.currentTime, painted: data.some(v => v > 0), error: video.error?.message, of: video.videoWidth};
  });

/** By keys alone: from the picture of an event to its moment in the clip, and to a further event. */
async function clips(c) {
  const thumbnails = c.page.getByRole('button', {name: /^Play the clip: \d crossed door/});
  await until('two pictures of events', async () => (await thumbnails.count()) > 1);
  await until('a picture', () => thumbnails.first().evaluate(b => b.querySelector('img').naturalWidth > 0));
  await check(c, 'events');
  // The video stays at the moment until the test plays it.
  await c.page.evaluate(() => {
    window.play = HTMLMediaElement.prototype.play;
    HTMLMediaElement.prototype.play = async () => {};
  });
  await thumbnails.first().focus();
  await c.page.keyboard.press('Enter');
  const player = c.page.getByRole('dialog'),
    video = player.locator('video');
  const id = async () => /clips\/([^/]+)/.exec(await video.getAttribute('src'))[1];
  const shown = await (await clip(await id())).json();
  assert.equal(shown.state, 'ready');
  const moments = shown.events.map(e => e.at_us / 1e6);
  const stopped = await until('the moment of an event, with boxes', async () => {
    const now = await drawn(c);
    assert.equal(now.error, undefined);
    return now.painted && moments.some(at => Math.abs(now.at - at) < 0.2) && now;
  });
  const title = await player.getAttribute('aria-label');
  await check(c, 'player');
  await c.page.evaluate(() => void (HTMLMediaElement.prototype.play = window.play));
  await c.page.keyboard.press('e');
  await until('a video that plays', async () => (await drawn(c)).at > stopped.at);
  const cue = await until('the text track of the objects', () =>
    video.evaluate(v => {
      v.textTracks[0].mode = 'showing';
      return v.textTracks[0].cues?.[0]?.text;
    }),
  );
  assert.match(cue, /^class \d #\d+ \d+%$/);
  await video.evaluate(v => (v.textTracks[0].mode = 'disabled'));
  await c.page.keyboard.press('p');
  await until('another event', async () => await player.getByRole('button', {name: /^Next event/}).isEnabled());
  await c.page.keyboard.press('n');
  await until('the newest event', async () => (await player.getAttribute('aria-label')) === title);
  const [file] = await Promise.all([
    c.page.waitForEvent('download'),
    player.getByRole('link', {name: 'Download'}).press('Enter'),
  ]);
  assert.equal(fs.readFileSync(await file.path()).toString('latin1', 4, 8), 'ftyp');
  await player.getByRole('button', {name: 'Favourite'}).press('Enter');
  await until('a favourite', async () => (await (await clip(shown.id)).json()).favourite);
  await c.page.keyboard.press('Escape');
  await player.waitFor({state: 'detached'});
  const row = c.page.locator(`[data-clip="${shown.id}"]`);
  await row.getByText('favourite').waitFor();
  c.page.once('dialog', d => d.accept());
  await row.getByRole('button').press('Enter');
  await player.getByRole('button', {name: 'Delete'}).press('Enter');
  await player.waitFor({state: 'detached'});
  await row.waitFor({state: 'detached'});
  assert.equal((await clip(shown.id)).status, 404);
}

export const rules = {
  // A line drawn with the mouse, a zone with a finger, and a zone by the keyboard count what crosses them.
  async rules(browser) {
    await fetch(STREAM, {method: 'PATCH', body: '{"model":"tracked"}'});
    const c = await Console.open(browser, '/streams', {wait: '[data-stream=digits] video', hasTouch: true});
    const card = c.page.locator('[data-stream=digits]');
    await card.getByRole('button', {name: 'Lines and zones'}).click();
    const form = c.page.getByRole('form', {name: 'Lines and zones of digits'}),
      apply = form.getByRole('button', {name: 'Apply'}),
      area = form.locator('[data-area]');
    const field = (shape, label) => form.getByRole('group', {name: shape}).getByLabel(label, {exact: true});
    const point = async (x, y) => {
      await area.scrollIntoViewIfNeeded();
      const box = await area.boundingBox();
      return {x: box.x + x * box.width, y: box.y + y * box.height};
    };
    const close = (points, want) =>
      assert.ok(
        points.length === want.length && points.flat().every((v, i) => Math.abs(v - want.flat()[i]) < 0.005),
        JSON.stringify(points),
      );
    const applied = async look => {
      await apply.click();
      await until('the page says so', async () => {
        assert.deepEqual(await form.getByRole('alert').allTextContents(), []);
        return (await form.getByRole('status').textContent()) === 'Changed.';
      });
      look((await state()).rules ?? {});
      assert.equal(await apply.isDisabled(), true, 'what was sent can be sent again');
    };
    assert.equal(await apply.isDisabled(), true, 'there is nothing to send yet');

    await form.getByRole('button', {name: 'Add a line'}).click();
    const [from, to] = [await point(0.5, 0.02), await point(0.5, 0.98)];
    await c.page.mouse.move(from.x, from.y);
    await c.page.mouse.down();
    await c.page.mouse.move(to.x - 30, to.y - 30, {steps: 3});
    await c.page.mouse.move(to.x, to.y);
    await c.page.mouse.up();
    await field('Line line-1', 'Name').fill('door');
    await applied(({lines: [line]}) => {
      assert.equal(line.name, 'door');
      close(
        [line.from, line.to],
        [
          [0.5, 0.02],
          [0.5, 0.98],
        ],
      );
    });
    const crossed = await event('cross', 'door');
    assert.match(crossed.direction, /^(in|out)$/);
    const counted = async () => {
      const cells = await card.getByRole('row', {name: /^door/}).getByRole('cell').allTextContents();
      return cells.slice(1, 3).reduce((sum, text) => sum + Number(text), 0);
    };
    await until('a count', async () => (await counted()) > 0);

    // The objects of the last hour over the picture: where most time was, in words and as a colour.
    const toggle = card.getByRole('button', {name: 'Heat map of the last hour'});
    await toggle.press('Enter');
    const heat = card.locator('[data-heat]');
    const most = await until('the busiest place', async () =>
      /^The most time was (\d+) % from the left and (\d+) % from the top/.exec(
        await heat.locator('figcaption').textContent(),
      ),
    );
    const opacity = () =>
      heat.locator('canvas').evaluate((canvas, [x, y]) => {
        const [column, row] = [Math.floor((x * canvas.width) / 100), Math.floor((y * canvas.height) / 100)];
        const {data} = canvas.getContext('2d').getImageData(column - 1, row - 1, 3, 3); // the words are rounded
        return Math.max(...data.filter((_, i) => i % 4 === 3));
      }, most.slice(1).map(Number));
    await until('a painted place', async () => (await opacity()) > 200);
    await check(c, 'heat');
    await toggle.press('Enter');
    await heat.waitFor({state: 'detached'});

    await form.getByRole('button', {name: 'Add a zone'}).tap();
    const touch = await c.page.context().newCDPSession(c.page),
      [a, b] = [await point(0.02, 0.02), await point(0.4, 0.98)];
    const send = (type, ...touchPoints) => touch.send('Input.dispatchTouchEvent', {type, touchPoints});
    await send('touchStart', a);
    await send('touchMove', {x: (a.x + b.x) / 2, y: (a.y + b.y) / 2});
    await send('touchMove', b);
    await send('touchEnd');
    await field('Zone zone-1', 'Event after a stay of').fill('ever');
    await apply.click();
    const dwell = field('Zone zone-1', 'Event after a stay of');
    await until('a refusal', () => dwell.getAttribute('aria-invalid'));
    assert.equal(await dwell.evaluate(e => e === document.activeElement), true, 'the field has not the focus');
    c.forgive();
    await dwell.fill('100ms');
    await field('Zone zone-1', 'Classes').fill('0, 1,2');

    await form.getByRole('button', {name: 'Add a zone'}).press('Enter');
    const corner = n => form.getByRole('button', {name: new RegExp(`^zone-2, corner ${n}:`)});
    await corner(1).focus();
    await c.page.keyboard.press('ArrowLeft');
    await c.page.keyboard.press('Shift+ArrowUp');
    await form.getByRole('button', {name: 'zone-2: add a corner behind corner 4'}).press('Enter');
    await corner(3).press('Delete');
    await check(c, 'rules');
    await applied(({zones: [one, two]}) => {
      close(one.polygon, [
        [0.02, 0.02],
        [0.4, 0.02],
        [0.4, 0.98],
        [0.02, 0.98],
      ]);
      assert.deepEqual([one.dwell, one.classes], ['100ms', ['0', '1', '2']]);
      assert.deepEqual(two.polygon, [
        [0.24, 0.249],
        [0.75, 0.25],
        [0.25, 0.75],
        [0.245, 0.4995],
      ]);
    });

    // A corner moved over another side: the reason is at the zone.
    await corner(4).focus();
    for (let i = 0; i < 50; i++) await c.page.keyboard.press('ArrowRight');
    await apply.click();
    await form.getByRole('group', {name: 'Zone zone-2'}).getByRole('alert').waitFor();
    c.forgive();
    await form.getByRole('button', {name: 'Remove zone-2'}).click();

    // A condition that compares what is not there is refused at its field.
    await form.getByRole('button', {name: 'Add a condition'}).press('Enter');
    const test = field('Condition condition-1', 'Event if');
    await form.getByText('in(door), out(door), now(zone-1)').waitFor();
    await test.fill('now(gate) > 0');
    await apply.click();
    await until('a refusal', () => test.getAttribute('aria-invalid'));
    assert.equal(await test.evaluate(e => e === document.activeElement), true, 'the field has not the focus');
    c.forgive();
    await test.fill('now(zone-1) >= 1');
    await field('Condition condition-1', 'for at least').fill('50ms');
    await check(c, 'conditions');
    await applied(({when}) => assert.deepEqual(when, [{name: 'condition-1', if: 'now(zone-1) >= 1', for: '50ms'}]));
    await event('when', 'condition-1');
    await form.getByRole('button', {name: 'Remove condition-1'}).click();
    await form.getByRole('button', {name: 'Remove zone-1'}).click();
    await form.getByRole('button', {name: 'Swap in and out'}).click();
    await applied(({lines: [line], zones}) => {
      close(
        [line.from, line.to],
        [
          [0.5, 0.98],
          [0.5, 0.02],
        ],
      );
      assert.equal(zones, undefined);
    });
    c.page.on('dialog', d => d.accept());
    const before = await counted();
    await card.getByRole('button', {name: 'Reset counts'}).click();
    await until('smaller counts', async () => (await counted()) < before);
    await form.getByRole('button', {name: 'Remove door'}).click();
    await applied(rules => assert.deepEqual(rules, {}));
    await fetch(`${STREAM}/reset`, {method: 'POST'});
    await c.close();
    return {crossed};
  },

  // The history of a line that was drawn before, filtered and downloaded, and the clips of its events.
  async events(browser) {
    const door = '{"lines":[{"name":"door","from":[0.5,0],"to":[0.5,1]}]}',
      made = '{"on":["cross"],"before":"1s","after":"500ms","length":"3s"}';
    await fetch(STREAM, {method: 'PATCH', body: `{"model":"tracked","rules":${door},"clips":${made}}`});
    await event('cross', 'door');
    const c = await Console.open(browser, '/events?camera=digits', {wait: '[data-event=cross]'});
    await c.page.getByRole('img', {name: /^\d+ events of digits$/}).waitFor();
    assert.match(await c.page.locator('[data-event=cross]').first().textContent(), /\d crossed door, (in|out)/);
    const [download] = await Promise.all([
      c.page.waitForEvent('download'),
      c.page.getByRole('button', {name: 'Download'}).click(),
    ]);
    const events = fs
      .readFileSync(await download.path(), 'utf8')
      .trim()
      .split('\n')
      .map(JSON.parse);
    assert.ok(events.length > 0 && events.every(e => e.stream === 'digits' && e.id), JSON.stringify(events[0]));
    await clips(c);
    await c.page.getByLabel('Type').selectOption('dwell');
    await until('another address', () => /camera=digits&type=dwell/.test(c.page.url()));
    await until('only stays', async () => (await c.page.locator('[data-event=cross]').count()) === 0);
    await fetch(`${STREAM}/reset`, {method: 'POST'});
    await c.close();
  },
};
