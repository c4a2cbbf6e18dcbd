// A session of millrace.v1: any number of streams over one connection at a time.
// It must not know the page or its sources.

import {Stream} from './stream.js';
import {Backoff} from './backoff.js';

/** Close codes after which connecting again would fail again. */
const FINAL = new Set([1008, 1009, 4400, 4401, 4404, 4409]);

const PING_INTERVAL = 5000; // ms
const MAX_SILENT = 2; // intervals without a message, after which the connection is given up

/**
 * Connects when the first stream starts. It reconnects when the connection is
 * lost, and resumes the session if the server still has it; otherwise it opens its
 * streams again. It ends with its last stream.
 */
export class Session {
  #url;
  #socket = null;
  #ready = false; // the connection has a session
  #timer = 0; // until the next attempt to connect
  #pingTimer = 0;
  #silent = 0;
  #backoff = new Backoff();
  #token = ''; // resumes the session, once
  #newSession; // the server's message with a new session, for when the old one cannot be resumed
  #fault; // the server's error for the connection
  #draining = false; // the server is draining
  #streams = new Set();
  #sids = 0; // the last stream number

  /** Given by the server; it changes when the session cannot be resumed. */
  id = '';

  /** @param {string} url ws: or wss: */
  constructor(url) {
    this.#url = url;
  }

  /**
   * Makes a stream to a model; start opens it.
   * @param {string} model
   * @param {{codec?: string, policy?: object}} options as in the protocol's `open`
   * @returns {Stream}
   */
  stream(model, options) {
    return new Stream(this, model, options);
  }

  /** Whether a message sent now is not queued behind others. */
  get writable() { return this.#ready && !this.#draining && this.#socket.bufferedAmount === 0; }

  // The remaining methods are for Stream.

  add(stream) {
    this.#streams.add(stream);
    if (this.#ready) stream.open(++this.#sids);
    else if (!this.#socket && !this.#timer) this.#connect();
  }

  remove(stream) {
    if (!this.#streams.delete(stream)) return;
    if (this.#ready && stream.sid) this.sendMessage({type: 'close', sid: stream.sid});
    stream.sid = 0;
    if (this.#streams.size === 0) this.#end();
  }

  /** The server has closed the stream. */
  forget(stream) {
    stream.sid = 0;
  }

  sendMessage(message) {
    this.#socket.send(JSON.stringify(message));
  }

  sendFrame(frame) {
    this.#socket.send(frame);
  }

  #connect() {
    this.#timer = 0;
    this.#silent = 0;
    this.#fault = this.#newSession = undefined;
    this.#draining = false;
    this.#socket = new WebSocket(this.#url, 'millrace.v1');
    this.#socket.onmessage = m => this.#message(JSON.parse(m.data));
    this.#socket.onclose = e => this.#closed(e);
    this.#pingTimer = setInterval(() => this.#ping(), PING_INTERVAL);
  }

  /** Detects a dead connection while the session can still be resumed. */
  #ping() {
    if (this.#silent++ >= MAX_SILENT) this.#reconnect();
    else if (this.#ready) this.sendMessage({type: 'ping', t: Math.round(performance.now())});
  }

  #message(m) {
    this.#silent = 0;
    switch (m.type) {
      case 'ready':
        this.#newSession = m;
        if (this.#token) this.#attach();
        else this.#begin(m);
        return;
      case 'attached':
        this.#resume(m);
        return;
      case 'goaway':
        this.#draining = true;
        return;
      case 'error':
        if (m.sid !== undefined) break;
        if (!this.#ready && !m.fatal) this.#begin(this.#newSession); // the session cannot be resumed
        else this.#fault = m;
        return;
    }
    if (m.sid) [...this.#streams].find(s => s.sid === m.sid)?.handle(m);
  }

  #attach() {
    const streams = [...this.#streams].filter(s => s.sid);
    this.sendMessage({
      type: 'attach', token: this.#token,
      // Endings do not come in order: all below the oldest frame in flight have come.
      streams: streams.map(s => ({sid: s.sid, last_seq: s.lastEnded})),
    });
    this.#token = ''; // valid once, whether a reply comes or not
  }

  /** Begins a new session and opens the streams in it. */
  #begin(ready) {
    this.#setSession(ready);
    for (const stream of this.#streams) stream.open(++this.#sids);
  }

  /** Resumes the session of the connection before. */
  #resume(attached) {
    this.#setSession(attached);
    const states = new Map(attached.streams.map(s => [s.sid, s]));
    for (const stream of [...this.#streams]) {
      if (stream.resume(states.get(stream.sid))) states.delete(stream.sid);
      else stream.open(++this.#sids);
    }
    for (const sid of states.keys()) this.sendMessage({type: 'close', sid}); // stopped in the meantime
  }

  #setSession({session, resume_token: token}) {
    this.id = session;
    this.#token = token;
    this.#ready = true;
    this.#backoff.reset();
  }

  #closed(e) {
    const fault = this.#fault ?? (e.reason ? {code: String(e.code), message: e.reason} : undefined);
    if (FINAL.has(e.code)) {
      for (const stream of [...this.#streams]) stream.finish(fault ?? {code: String(e.code), message: 'the server closed the session'});
      return;
    }
    this.#reconnect(fault);
  }

  #reconnect(fault) {
    this.#detach();
    this.#timer = setTimeout(() => this.#connect(), this.#backoff.next(fault?.retry_after_ms));
    for (const stream of [...this.#streams]) stream.disconnected(fault);
  }

  #end() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#token = this.id = '';
    this.#detach()?.close(1000);
  }

  /** Detaches the connection without closing it, because closing it would end the session. */
  #detach() {
    const socket = this.#socket;
    clearInterval(this.#pingTimer);
    this.#socket = null;
    this.#ready = false;
    if (!socket) return null;
    socket.onmessage = socket.onclose = null;
    if (socket.readyState === WebSocket.CONNECTING) socket.close();
    return socket;
  }
}
