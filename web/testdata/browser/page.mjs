// What the cases use: console pages, and ways to the server.

import assert from 'node:assert/strict';
import net from 'node:net';
import {setTimeout as delay} from 'node:timers/promises';

export const given = JSON.parse(process.argv[2]);
export const TIMEOUT = 180_000; // ms, for any one thing: a busy machine is slow, and no case is about speed

/** The way to the server, which can be cut. */
export class Way {
  #ends = new Set();
  #listener = net.createServer(from => {
    const {hostname, port} = new URL(given.url);
    const to = net.connect(port, hostname);
    for (const [end, other] of [
      [from, to],
      [to, from],
    ]) {
      this.#ends.add(end);
      end
        .on('error', () => {})
        .on('close', () => {
          this.#ends.delete(end);
          other.destroy();
        })
        .pipe(other);
    }
  });

  static async open() {
    const self = new Way();
    await new Promise(done => self.#listener.listen(0, '127.0.0.1', done));
    self.url = `http://127.0.0.1:${self.#listener.address().port}`;
    return self;
  }

  cut() {
    for (const end of this.#ends) end.resetAndDestroy();
  }

  close() {
    this.cut();
    this.#listener.close();
  }
}

/** A console page. Everything that the browser complains of is kept in `complaints`. */
export class Console {
  complaints = [];

  static async open(browser, hash = '', {base = given.url, wait = '#model option', ...options} = {}) {
    const self = new Console();
    self.page = await browser.newPage({viewport: {width: 1280, height: 800}, ...options});
    self.page.setDefaultTimeout(TIMEOUT);
    self.page.on('console', m => {
      // About this file's reading of the overlay, and about containers of other tests, whose networks come and go.
      const others = /willReadFrequently|net::ERR_NETWORK_CHANGED/.test(m.text());
      if ((m.type() === 'error' || m.type() === 'warning') && !others) self.complaints.push(m.text());
    });
    self.page.on('pageerror', e => self.complaints.push(e.message));
    self.page.on('request', r => {
      const url = new URL(r.url());
      if (url.protocol.startsWith('http') && url.origin !== new URL(base).origin)
        self.complaints.push(`asked for ${url}`);
    });
    await self.page.addInitScript(watch);
    await self.page.goto(`${base}/console/#${hash}`);
    await self.page.waitForSelector(wait, {state: 'attached'});
    return self;
  }

  /** Waits until the expression about m, window.millrace, is true. */
  async until(expression) {
    // The page's policy forbids what playwright's own waiting does.
    const end = Date.now() + TIMEOUT;
    while (!(await this.holds(expression))) {
      if (Date.now() > end) throw new Error(`never came: ${expression}, but ${JSON.stringify(await this.view())}`);
      await delay(50);
    }
  }

  holds = expression => this.page.evaluate(`(m => ${expression})(window.millrace)`);

  /** As until, with a file: of one pass through the file, a slow machine may send too few frames. */
  async untilReplayed(expression) {
    for (const end = Date.now() + TIMEOUT; ;) {
      await this.until(`(${expression}) || /has ended/.test(m.message)`);
      if (await this.holds(expression)) return;
      if (Date.now() > end) throw new Error(`never came: ${expression}, but ${JSON.stringify(await this.view())}`);
      await this.page.click('#start');
      await this.until('!/has ended/.test(m.message)');
    }
  }

  /** Waits until the page shows a number above 0 for each: on a slow machine, seconds can pass without a result. */
  async shows(...ids) {
    const shown = ids.map(id => `Number(document.getElementById('${id}').textContent) > 0`);
    await this.until(shown.join(' && '));
  }

  view = () => this.page.evaluate(() => ({...window.millrace, last: undefined}));
  seen = () => this.page.evaluate('window.seen');
  drawn = () => this.page.evaluate('window.drawn');
  /** The frames sent over the newest connection, the oldest first: the flag of key frames, codec and size. */
  sent = () => this.page.evaluate('window.sent');

  /** Every frame that was sent has one ending, or is one of the two in flight. */
  async balanced() {
    const v = await this.view();
    const rest = v.sent - v.answered - v.dropped - v.errors;
    assert.ok(rest >= 0 && rest <= 2, `frames without an ending: ${JSON.stringify(v)}`);
    return v;
  }

  /** Leaves out what the browser says of connections that cannot be made. */
  forgive() {
    this.complaints = this.complaints.filter(text => !/^(WebSocket connection to|Failed to load resource)/.test(text));
  }

  async close() {
    assert.deepEqual(this.complaints, []);
    await this.page.close();
  }
}

/** Runs in the page, before its scripts: keeps results, and looks at the overlay when one was drawn. */
function watch() {
  window.seen = [];
  window.sent = [];
  let socket;
  const send = WebSocket.prototype.send;
  WebSocket.prototype.send = function (data) {
    if (data instanceof Uint8Array) {
      if (this !== socket) window.sent = [];
      socket = this;
      window.sent.push({codec: data[2], key: (data[3] & 1) === 1, size: data.length});
    }
    send.call(this, data);
  };
  document.addEventListener('securitypolicyviolation', e =>
    console.error(`the policy forbids ${e.violatedDirective}: ${e.blockedURI}`),
  );
  window.drawn = {edges: 0, there: 0, boxes: 0};
  const painted = (g, x, y) => g.getImageData(Math.round(x), Math.round(y), 1, 1).data[3] > 0;
  const look = ({detail: r}) => {
    window.seen.push(r);
    if (window.drawn.boxes > 200) return;
    const canvas = document.getElementById('overlay');
    if (!canvas) return; // the view was left
    const g = canvas.getContext('2d');
    const scale = Math.min(canvas.width / r.width, canvas.height / r.height);
    const x = v => (canvas.width - r.width * scale) / 2 + v * scale,
      y = v => (canvas.height - r.height * scale) / 2 + v * scale;
    for (const b of r.boxes) {
      window.drawn.boxes++;
      const mx = x((b.x1 + b.x2) / 2),
        my = y((b.y1 + b.y2) / 2);
      for (const [px, py] of [
        [x(b.x1), my],
        [x(b.x2), my],
        [mx, y(b.y1)],
        [mx, y(b.y2)],
      ]) {
        if (px < 1 || py < 1 || px > canvas.width - 2 || py > canvas.height - 2) continue;
        window.drawn.edges++;
        if (painted(g, px, py)) window.drawn.there++;
      }
    }
  };
  Object.defineProperty(window, 'millrace', {
    configurable: true,
    set(value) {
      Object.defineProperty(window, 'millrace', {value, writable: true});
      value.addEventListener('result', look);
    },
  });
}
