// What the tests use: a real server, ways to it that can be cut, pages in a real Chromium.

import {spawn} from 'node:child_process';
import {readFile} from 'node:fs/promises';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import readline from 'node:readline';
import {fileURLToPath} from 'node:url';

export const DIST = fileURLToPath(new URL('../dist/', import.meta.url));
const PROGRAM = process.env.MILLRACE; // the server's program

/** A port that is free now. */
export async function freePort() {
  const listener = net.createServer();
  await new Promise(done => listener.listen(0, '127.0.0.1', done));
  const {port} = listener.address();
  await new Promise(done => listener.close(done));
  return port;
}

/** A running server. */
export class Server {
  /** @param {string[]} args of serve @param {{port?: number, env?: object}} options */
  static async start(args, {port, env = {}} = {}) {
    const self = new Server();
    self.port = port ?? (await freePort());
    self.args = args;
    self.env = env;
    self.url = `http://127.0.0.1:${self.port}`;
    await self.restart();
    return self;
  }

  async restart() {
    this.child = spawn(
      PROGRAM,
      ['serve', '--http', `127.0.0.1:${this.port}`, '--grpc', 'off', '--log-level', 'error', ...this.args],
      {env: {...process.env, ...this.env}, stdio: ['ignore', 'pipe', 'pipe']},
    );
    this.ended = new Promise(done => this.child.on('exit', done));
    let said = '';
    this.child.stderr.on('data', data => (said += data));
    const ready = new Promise(done =>
      readline.createInterface({input: this.child.stdout}).on('line', line => line.includes('is ready') && done(true)),
    );
    if (!(await Promise.race([ready, this.ended.then(() => false)])))
      throw new Error(`the server did not start: ${said}`);
  }

  async stop(signal = 'SIGTERM') {
    this.child.kill(signal);
    await this.ended;
  }
}

/** A way to a server, which can be cut. */
export class Way {
  #ends = new Set();
  #listener;

  static async open(port) {
    const self = new Way();
    self.#listener = net.createServer(from => {
      const to = net.connect(port, '127.0.0.1');
      for (const [end, other] of [
        [from, to],
        [to, from],
      ]) {
        self.#ends.add(end);
        end
          .on('error', () => {})
          .on('close', () => {
            self.#ends.delete(end);
            other.destroy();
          })
          .pipe(other);
      }
    });
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

const TYPES = {
  '.js': 'text/javascript',
  '.html': 'text/html; charset=utf-8',
  '.webm': 'video/webm',
  '.mp4': 'video/mp4',
  '.png': 'image/png',
};

/** Serves the client at /dist/, and files by their names. @param {Object<string, string | Buffer>} files */
export async function site(files) {
  const listener = http.createServer(async (request, reply) => {
    const name = new URL(request.url, 'http://x').pathname.slice(1);
    const body = name.startsWith('dist/')
      ? await readFile(path.join(DIST, path.basename(name))).catch(() => {})
      : files[name];
    reply
      .writeHead(body ? 200 : 404, {'Content-Type': TYPES[path.extname(name)] ?? 'application/octet-stream'})
      .end(body);
  });
  await new Promise(done => listener.listen(0, '127.0.0.1', done));
  return {url: `http://127.0.0.1:${listener.address().port}`, close: () => listener.close()};
}
