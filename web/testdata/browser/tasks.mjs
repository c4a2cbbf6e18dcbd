// The cases of Tasks. A consumer on another host, for the model "painter", is this file.

import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import {Console, given} from './page.mjs';
import {check, until} from './views.mjs';

const REQUEST = '{"inputs":[{"name":"x","datatype":"INT32","shape":[2],"data":[7,8]}]}';
const MIB = 1 << 20;

/** A file of the test's folder. */
function file(name, data) {
  const at = path.resolve(name);
  fs.writeFileSync(at, data);
  return at;
}

/** An answer of the server. */
async function call(method, at, {body, base = given.url, headers = {}} = {}) {
  const reply = await fetch(base + at, {method, body, headers}),
    text = await reply.text();
  return {status: reply.status, value: text ? JSON.parse(text) : undefined};
}

const submit = async (query, body = REQUEST, options = {}) =>
  (await call('POST', `/v2/tasks?${query}`, {body, ...options})).value;
const task = async id => (await call('GET', `/v2/tasks/${id}`)).value;

/** The task that waits for the painter, as a claim of it. */
async function claim() {
  const {status, value} = await call('POST', '/v2/work/claims', {
    body: JSON.stringify({consumer: 'easel', models: ['painter'], wait_ms: 60_000}),
  });
  assert.equal(status, 200);
  const at = `/v2/work/claims/${value.task.id}/${value.task.attempt}`;
  return {
    task: value.task,
    report: (done, total) => call('POST', `${at}/renew`, {body: JSON.stringify({progress: {done, total}, wait_ms: 0})}),
    fail: message => call('POST', `${at}/fail`, {body: JSON.stringify({code: 'internal', message, again: false})}),
    finish: (data, type, name) =>
      call('PUT', `${at}/result`, {
        body: data,
        headers: {
          'Content-Type': type,
          'Content-Digest': `sha-256=:${crypto.createHash('sha256').update(data).digest('base64')}:`,
          ...(name ? {'Content-Disposition': `attachment; filename=${name}`} : {}),
        },
      }),
  };
}

/** Drops files of the disk on the view, as a user does. */
async function drop(c, ...files) {
  const browser = await c.page.context().newCDPSession(c.page);
  const data = {items: [], files, dragOperationsMask: 1};
  const send = type => browser.send('Input.dispatchDragEvent', {type, x: 600, y: 400, data});
  await send('dragEnter');
  await until('a place for the files', async () => {
    await send('dragOver');
    return c.page.locator('.drop.over').count();
  });
  await send('drop');
  await browser.detach();
}

/** Sends at most this many bytes/s until the function that it returns is called. */
async function slowly(c, uploadThroughput) {
  const browser = await c.page.context().newCDPSession(c.page);
  const limits = {offline: false, latency: 0, downloadThroughput: -1};
  await browser.send('Network.enable');
  await browser.send('Network.emulateNetworkConditions', {...limits, uploadThroughput});
  return async () => {
    await browser.send('Network.emulateNetworkConditions', {...limits, uploadThroughput: -1});
    await browser.detach();
  };
}

const open = (browser, query = '', options = {}) =>
  Console.open(browser, `/tasks${query}`, {wait: '#submit-task', ...options});
const state = (c, text) =>
  until(`the state ${text}`, async () => (await c.page.locator('#task [role=status]').textContent()).startsWith(text));
const form = c => c.page.getByRole('form', {name: 'Submit a task'});
const rows = c => c.page.$$eval('#tasks tbody [data-task], #tasks tr[data-task]', all => all.map(e => e.dataset.task));

export const tasks = {
  // From a drop to the result: upload, waiting for the model, progress and result are shown as they happen.
  async 'tasks/submit'(browser) {
    const c = await open(browser);
    await drop(c, file('request.json', REQUEST));
    await form(c).locator('#submit-model').selectOption('slow');
    await form(c).getByRole('button', {name: 'Submit'}).click();
    await state(c, 'finished');
    await until('the result', async () => /"name": "delay_us"/.test(await c.page.textContent('#result pre')));
    assert.match(await c.page.textContent('#task table'), /input.*request\.json.*application\/json/);

    const zip = file('parts.zip', Buffer.alloc(6 * MIB, 7));
    const fast = await slowly(c, 2 * MIB);
    await drop(c, zip);
    await form(c).locator('#submit-model').selectOption({label: 'another model'});
    await form(c).getByLabel('Name of the model').fill('painter');
    await form(c).getByText('Options').click();
    await form(c).getByLabel('Priority, -100 to 100').fill('7');
    await form(c).getByRole('button', {name: 'Submit'}).click();
    const upload = c.page.getByRole('progressbar', {name: 'Upload of parts.zip'});
    await until('a part of the upload', () =>
      upload.evaluate(e => e.value > 0 && e.value < e.max && e.max === 6 * 1024 * 1024).catch(() => false),
    );
    await fast();
    await until('the painter is missing', async () =>
      /^queued until painter is loaded/.test(await c.page.locator('#task [role=status]').textContent()),
    );
    assert.equal(await c.page.locator('#uploads').count(), 0, 'an upload that has ended is still shown');
    const painter = await claim();
    assert.deepEqual(
      [painter.task.priority, painter.task.input.size, painter.task.input.type, painter.task.input.name],
      [7, 6 * MIB, 'application/zip', 'parts.zip'],
    );
    await state(c, 'running for ');
    const progress = c.page.locator('#task progress');
    for (const [done, total] of [
      [3, 10],
      [8, 10],
    ]) {
      await painter.report(done, total);
      await until(`${done} of ${total}`, async () => {
        const text = await c.page.locator('#task [role=status]').textContent();
        return text.includes(`attempt 1 of 3 on easel`) && text.includes(`${done} of ${total}`);
      });
      assert.deepEqual(await progress.evaluate(e => [e.value, e.max]), [done, total]);
    }
    await check(c, 'tasks');
    const png = fs.readFileSync(given.pictures[0]);
    await painter.finish(png, 'image/png', 'painting.png');
    await state(c, 'finished');
    await until('the picture', () => c.page.locator('#result img').evaluate(e => e.naturalWidth === 320));
    const [download] = await Promise.all([c.page.waitForEvent('download'), c.page.click('#result a')]);
    assert.equal(download.suggestedFilename(), 'painting.png');
    assert.deepEqual(fs.readFileSync(await download.path()), png);
    await check(c, 'task');

    // The log is text, or is missing.
    await c.page.locator('#task summary').click();
    await until('the log or its absence', () => c.page.locator('#task details > p, #task details > pre').count());
    c.forgive();
    await c.close();
  },

  // A video with the results drawn over the frames, which plays in the page.
  async 'tasks/video'(browser) {
    const c = await open(browser);
    const drawn = form(c).getByLabel('Results of videos as an MP4 with the results drawn, not as JSON lines');
    await drop(c, file('request.json', REQUEST));
    assert.equal(await drawn.count(), 0, 'the choice is there without a video');
    await form(c).getByRole('button', {name: 'Leave out request.json'}).click();
    await drop(c, given.short);
    await form(c).locator('#submit-model').selectOption('spotter');
    await drawn.check();
    await form(c).getByRole('button', {name: 'Submit'}).click();
    await state(c, 'finished');
    const video = c.page.locator('#result video');
    await until('the length of the video', () => video.evaluate(v => v.readyState > 0));
    assert.deepEqual(await video.evaluate(v => [v.error, v.videoWidth > 0, Math.round(v.duration)]), [null, true, 2]);
    await video.evaluate(v => v.play());
    await until('the end of the video', () => video.evaluate(v => v.ended));
    await check(c, 'task-video');
    await c.close();
  },

  // Results of other kinds: the begin of a long text, the JSON of binary tensors, and a file.
  async 'tasks/results'(browser) {
    for (const [data, type, name, shown] of [
      [`${'é'.repeat(MIB)}end`, 'text/plain', 'long.txt', /^é+$/],
      ['a,b\n1,2\n', 'text/csv; charset=utf-8', 'table.csv', /^a,b\n1,2\n$/],
      ['<script>parent.document.title = "run"</script>', 'text/html', 'page.html', /^<script>parent/],
      ['{"a":[1,{"b":"ü"}]}', 'application/json', '', /^\{\n "a": \[\n  1,\n  \{\n   "b": "ü"/],
      ['PK', 'application/zip', 'all.zip', undefined],
      ['', 'text/plain', 'empty.txt', undefined],
    ]) {
      const {id} = await submit('model=painter');
      await (await claim()).finish(Buffer.from(data), type, name);
      const c = await open(browser, `?id=${id}`);
      await state(c, 'finished');
      await c.page
        .locator('#result a')
        .getByText(name || `painter-${id.slice(0, 8)}.json`)
        .waitFor();
      if (shown) assert.match(await until(name, () => c.page.textContent('#result pre')), shown);
      else assert.equal(await c.page.locator('#result pre, #result img').count(), 0);
      await c.close();
      await call('DELETE', `/v2/tasks/${id}`);
    }
    const head = JSON.stringify({
      inputs: [{name: 'x', datatype: 'UINT8', shape: [3], parameters: {binary_data_size: 3}}],
      parameters: {binary_data_output: true},
    });
    const {id} = await submit('model=slow', `${head}abc`, {
      headers: {'Inference-Header-Content-Length': String(head.length), 'Content-Type': 'application/octet-stream'},
    });
    const c = await open(browser, `?id=${id}`);
    await state(c, 'finished');
    assert.match(await until('the JSON', () => c.page.textContent('#result pre')), /"outputs": \[\n/);
    await c.page.getByText('The tensors are binary').waitFor();
    await c.close();
  },

  // Failed tasks are found by the state and tried again, one by one and all of a page.
  async 'tasks/retry'(browser) {
    const lost = [];
    for (const n of [1, 2, 3]) {
      lost.push((await submit(`model=painter&name=lost${n}.json`)).id);
      await (await claim()).fail(`no paint for ${n}`);
    }
    const c = await open(browser);
    await c.page.selectOption('#task-state', 'failed');
    await until('the failed tasks only', async () => {
      const all = await rows(c);
      return all.length >= 3 && all.slice(0, 3).join() === lost.toReversed().join();
    });
    assert.match(await c.page.textContent(`[data-task="${lost[0]}"]`), /failed.*no paint for 1.*1 of 3/);
    await check(c, 'failed-tasks');
    await c.page.getByRole('button', {name: `Retry ${lost[0]}`}).click();
    await c.page.locator(`[data-task="${lost[0]}"]`).waitFor({state: 'detached'});
    const first = await claim();
    assert.deepEqual([first.task.id, first.task.attempt], [lost[0], 2]);
    await first.finish('{}', 'application/json');
    assert.equal((await task(lost[0])).state, 'finished');

    // In the task's own panel, by keyboard.
    await c.page.locator(`[data-task="${lost[1]}"] a`).focus();
    await c.page.keyboard.press('Enter');
    await state(c, 'failed');
    await until('the focus is at the task', () =>
      c.page.evaluate(() => document.activeElement?.closest('#task') !== null),
    );
    assert.match(await c.page.textContent('#task .message'), /^no paint for 2 \(internal\)$/);
    await c.page.keyboard.press('Tab');
    await c.page.keyboard.press('Tab');
    await c.page.keyboard.press('Enter');
    await state(c, 'queued');
    await (await claim()).finish('{}', 'application/json');
    await state(c, 'finished');

    lost.push((await submit(`model=painter&name=lost4.json`)).id);
    await (await claim()).fail('no paint for 4');
    c.page.on('dialog', d => d.accept());
    await c.page.fill('#task-text', 'no paint');
    await c.page.getByRole('button', {name: 'Retry these 2 tasks'}).click();
    await c.page.getByText('No task is like that.').waitFor();
    const again = [await claim(), await claim()];
    assert.deepEqual(again.map(a => a.task.id).sort(), [lost[2], lost[3]].sort());
    for (const a of again) await a.finish('{}', 'application/json');
    await c.close();
  },

  // A task that waits and one that runs are cancelled; a task is deleted after a confirmation.
  async 'tasks/cancel'(browser) {
    const {id} = await submit('model=painter&name=never.json');
    const c = await open(browser, `?id=${id}`),
      panel = c.page.locator('#task'),
      button = name => panel.getByRole('button', {name, exact: true});
    await state(c, 'queued');
    await button('Cancel').click();
    await state(c, 'cancelled');
    assert.equal((await task(id)).state, 'cancelled');
    await button('Retry').click();
    await state(c, 'queued');
    const painter = await claim();
    await state(c, 'running');
    assert.equal(await button('Delete').count(), 0, 'a task that runs can be deleted');
    await button('Cancel').click();
    await state(c, 'cancelled');
    assert.equal((await painter.report(1, 2)).status, 409, 'the consumer still has the task');

    let answer = 'dismiss';
    c.page.on('dialog', d => {
      assert.match(d.message(), /^Delete the task never\.json/);
      void d[answer]();
    });
    await button('Delete').click();
    assert.equal((await task(id)).state, 'cancelled');
    answer = 'accept';
    await button('Delete').click();
    await panel.waitFor({state: 'detached'});
    await c.page.locator(`[data-task="${id}"]`).waitFor({state: 'detached'});
    assert.equal((await call('GET', `/v2/tasks/${id}`)).status, 404);
    await c.close();

    const gone = await open(browser, `?id=${id}`);
    await gone.page.locator('#task .message').getByText('there is no task').waitFor();
    gone.forgive();
    await gone.close();
  },

  // Filters by state, model and text, which the address has too; and pages.
  async 'tasks/filter'(browser) {
    const many = [];
    for (let i = 0; i < 120; i++) many.push((await submit(`model=nobody&name=Many${i}.json`)).id);
    many.sort().reverse(); // the newest first; ids of the same millisecond come in any order
    const c = await open(browser);
    const shows = ids => until(`${ids.length} tasks from ${ids[0]}`, async () => (await rows(c)).join() === ids.join());
    await c.page.selectOption('#task-model', 'nobody');
    await shows(many.slice(0, 50));
    const button = name => c.page.getByRole('navigation', {name: 'Pages'}).getByRole('button', {name});
    assert.equal(await button('Newer').isDisabled(), true);
    await button('Older').click();
    await shows(many.slice(50, 100));
    await button('Older').click();
    await shows(many.slice(100));
    assert.equal(await button('Older').isDisabled(), true);
    await button('Newer').click();
    await shows(many.slice(50, 100));
    await c.page.goBack();
    await shows(many.slice(100));
    await c.page.fill('#task-text', 'MANY11');
    const eleven = many.filter((_, i) => /^11/.test(String(119 - i)));
    await shows(eleven);
    assert.match(c.page.url(), /#\/tasks\?model=nobody&text=MANY11$/);
    await c.page.reload();
    await shows(eleven);
    await c.page.fill('#task-text', many[3]);
    await shows([many[3]]);
    await c.page.selectOption('#task-state', 'finished');
    await c.page.getByText('No task is like that.').waitFor();
    await c.page.goto(`${given.url}/console/#/tasks?state=queued,running&model=nobody`);
    await shows(many.slice(0, 50));
    assert.equal(await c.page.inputValue('#task-state'), 'queued,running');
    // A new task is shown without a reload.
    many.unshift((await submit('model=nobody')).id);
    await shows(many.slice(0, 50));
    for (const id of many) await call('DELETE', `/v2/tasks/${id}`);
    await c.page.getByText('No task is like that.').waitFor();
    await c.close();
  },

  // Several files are uploaded one after the other; one is stopped, and the others go on in another view.
  async 'tasks/uploads'(browser) {
    const c = await open(browser, '?model=painter');
    const fast = await slowly(c, MIB / 64);
    await c.page.focus('#submit-task');
    await c.page.keyboard.press('Enter');
    assert.equal(await form(c).getByLabel('Name of the model').inputValue(), 'painter');
    assert.equal(await form(c).getByRole('button', {name: 'Submit'}).isDisabled(), true);
    const names = ['one.bin', 'two.bin', 'three.bin', 'four.bin'];
    await form(c)
      .locator('input[type=file]')
      .setInputFiles(names.map((name, i) => file(name, Buffer.alloc((3 + i) * MIB, i))));
    await form(c).getByRole('button', {name: 'Leave out four.bin'}).click();
    await form(c).getByRole('button', {name: 'Submit 3 tasks'}).click();
    await c.page.locator('[data-upload=sending]').getByText('one.bin').waitFor();
    assert.equal(await c.page.locator('[data-upload=waiting]').count(), 2);
    await check(c, 'uploads');
    await c.page.getByRole('button', {name: 'Stop the upload of one.bin'}).click();
    await c.page.locator('[data-upload=sending]').getByText('two.bin').waitFor();
    await c.page.click('nav a:has-text("Models")');
    await c.page.waitForSelector('[data-model]');
    await fast();
    const stored = async () =>
      (await call('GET', '/v2/tasks?model=painter&state=queued')).value.tasks.map(t => t.input.name);
    await until('two tasks', async () => (await stored()).join() === 'three.bin,two.bin');
    await c.page.click('nav a:has-text("Tasks")');
    await until('both uploads', async () => (await c.page.locator('[data-upload=stored]').count()) === 2);
    for (const name of ['two.bin', 'three.bin'])
      await c.page.getByRole('button', {name: `Dismiss the upload of ${name}`}).click();
    await c.page.locator('#uploads').waitFor({state: 'detached'});
    for (const t of (await call('GET', '/v2/tasks?model=painter&state=queued')).value.tasks)
      await call('DELETE', `/v2/tasks/${t.id}`);

    // A folder cannot be uploaded.
    fs.mkdirSync('folder', {recursive: true});
    await drop(c, path.resolve('folder'));
    await form(c).locator('#submit-model').selectOption('slow');
    await form(c).getByRole('button', {name: 'Submit'}).click();
    await c.page.locator('[data-upload=failed]').getByText('Is it a folder').waitFor();
    c.forgive();
    await c.close();
  },

  // A server without a data folder.
  async 'tasks/off'(browser) {
    const c = await Console.open(browser, '/tasks', {base: given.apart.url, wait: '[data-off]'});
    assert.match(await c.page.textContent('[data-off]'), /millrace serve --data FOLDER/);
    assert.equal(await c.page.locator('#submit-task, #tasks table').count(), 0);
    c.forgive();
    await c.close();
  },

  // A client sees and does what its roles allow, and the server's words otherwise.
  async 'tasks/roles'(browser) {
    const {url, keys} = given.guarded,
      as = key => ({base: url, headers: {Authorization: `Bearer ${key}`}});
    const hers = await submit('model=motion&name=hers.json', REQUEST, as(keys.viewer)),
      others = await submit('model=motion&name=others.json', REQUEST, as(keys.all));
    const c = await Console.open(browser, '/tasks', {base: url, wait: '#key'});
    await c.page.fill('#user', 'eva');
    await c.page.fill('#password', 'sécret: of eva');
    await c.page.press('#password', 'Enter');
    await c.page.getByRole('alert').getByText('has not the role infer').waitFor();
    assert.equal(await c.page.locator('#submit-task, #tasks table').count(), 0);
    const login = async key => {
      await c.page.click('#logout');
      await c.page.fill('#key', key);
      await c.page.press('#key', 'Enter');
      await c.page.waitForSelector('#submit-task');
    };
    await login(keys.viewer);
    await until('her task only', async () => (await rows(c)).join() === hers.id);
    await c.page.goto(`${url}/console/#/tasks?id=${others.id}`);
    await c.page.locator('#task .message').getByText('there is no task').waitFor();
    await login(keys.all);
    await until('all tasks', async () => (await rows(c)).join() === `${others.id},${hers.id}`);

    // The server refuses the file before it has read the file.
    await drop(c, file('huge.zip', Buffer.alloc(64 * MIB)));
    await form(c).getByRole('button', {name: 'Submit'}).click();
    await c.page.locator('[data-upload=failed]').getByText('tasks.max_input').waitFor();
    await check(c, 'refused-task');
    c.forgive();
    await c.close();
  },
};
