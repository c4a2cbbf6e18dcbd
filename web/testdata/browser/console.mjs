// Opens the console in Chromium for browser_test.go, and prints a line of JSON for each look at the page.
//
//   node console.mjs play URL [CAMERA]   a page that starts by itself: looks while it runs, and again after Stop;
//                                        CAMERA, an MJPEG file, is what the browser's camera sees
//   node console.mjs file URL FILE       the same, with a file that is picked
//   node console.mjs told URL            looks when there is a message; no camera is allowed
//   node console.mjs away URL            looks while it runs, then as it waits for the server, then as it runs again
//   node console.mjs shot URL FILE.png   writes a picture of the page
//
// URLs may call this machine millrace.test: a name that is not localhost's.
import {chromium} from 'playwright-core';

const LONGEST = 60_000; // ms that anything may take
const FRAMES = 60; // answers before a look: enough that each digit was there more than once

const [what, url, file] = process.argv.slice(2);
const camera = what === 'play' && file;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: [
    '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update',
    '--disable-sync', '--host-resolver-rules=MAP millrace.test 127.0.0.1', '--use-fake-device-for-media-stream',
    ...camera ? ['--use-fake-ui-for-media-stream', `--use-file-for-fake-video-capture=${camera}`] : ['--deny-permission-prompts'],
  ],
});
const complaints = [];

/** Waits until the page says that a condition holds, given the page's own view and an argument. */
async function until(page, condition, arg) {
  try {
    await page.waitForFunction(condition, arg, {timeout: LONGEST, polling: 100});
  } catch (e) {
    throw new Error(`waited for ${condition} with ${arg}: ${e.message}; ${JSON.stringify(await look(page))}`);
  }
}

const running = (page, frames) => until(page, n => {
  const m = window.millrace;
  return m?.state === 'running' && m.answered >= n && m.last?.boxes.length > 0;
}, frames);

/** What a visitor sees, and what the page knows. */
async function look(page) {
  const seen = await page.evaluate(() => {
    const $ = id => document.getElementById(id);
    const overlay = $('overlay'), view = window.millrace;
    const alpha = overlay.width && overlay.height ? overlay.getContext('2d').getImageData(0, 0, overlay.width, overlay.height).data.filter((_, i) => i % 4 === 3) : [];
    const painted = (x, y) => alpha[Math.min(overlay.height - 1, Math.round(y)) * overlay.width + Math.min(overlay.width - 1, Math.round(x))] > 0;

    // The picture lies in the canvas as large as it fits, and a box's edges belong where they are in the picture.
    const still = document.querySelector('#stage img:not([hidden])'), video = $('video');
    const width = still?.naturalWidth ?? video.videoWidth, height = still?.naturalHeight ?? video.videoHeight;
    const scale = Math.min(overlay.width / width, overlay.height / height);
    const left = (overlay.width - width * scale) / 2, top = (overlay.height - height * scale) / 2;
    const edges = (view.last?.boxes ?? []).flatMap(([x1, y1, x2, y2]) => {
      const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2];
      return [[x1, y], [x2, y], [x, y1], [x, y2]];
    });
    return {
      state: view.state, message: $('message').hidden ? '' : $('message').innerText, fps: $('fps').innerText, age: $('age').innerText,
      dropped: $('dropped').innerText, startable: !$('start').disabled, answered: view.answered, errors: view.errors, seen: view.seen, last: view.last,
      painted: alpha.reduce((n, a) => n + (a > 0), 0), edges: edges.length, hit: edges.filter(([x, y]) => painted(left + x * scale, top + y * scale)).length,
      models: [...$('model').options].map(o => o.value), width, height,
    };
  });
  return {...seen, complaints};
}

const tell = async page => console.log(JSON.stringify(await look(page)));

async function stop(page) {
  await page.click('#stop');
  await until(page, () => window.millrace.state === 'stopped');
  await tell(page);
}

const cases = {
  async play(page) {
    await running(page, FRAMES);
    await tell(page);
    await stop(page);
  },
  async file(page) {
    await page.waitForSelector('#model option', {state: 'attached'});
    await page.check('#source-file');
    await page.setInputFiles('#file', file);
    await page.click('#start');
    await running(page, file.endsWith('.jpg') ? 1 : FRAMES);
    await tell(page);
    await stop(page);
  },
  async told(page) {
    await page.waitForSelector('#message:not(:empty)');
    await tell(page);
  },
  async away(page) {
    await running(page, 1);
    await tell(page);
    await until(page, () => window.millrace.state === 'waiting' && window.millrace.message !== '');
    await tell(page);
    await running(page, (await look(page)).answered + FRAMES);
    await tell(page);
  },
  async shot(page) {
    await running(page, 10 * FRAMES); // the plot has something to show by then
    await page.screenshot({path: file});
    await tell(page);
  },
};

try {
  const page = await browser.newPage({viewport: {width: 1280, height: 800}});
  page.setDefaultTimeout(LONGEST);
  page.on('pageerror', e => complaints.push(`uncaught: ${e.message}`));
  page.on('console', m => ['error', 'warning'].includes(m.type()) && complaints.push(`${m.type()}: ${m.text()} (${m.location().url})`));
  await page.goto(url);
  await cases[what](page);
} finally {
  await browser.close();
}
