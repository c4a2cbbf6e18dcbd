// A session of millrace.v1: any number of streams over one connection at a time.
// It knows no page and no camera.

import {Channel} from './channel.js';
import {Waits} from './waits.js';

/** Close codes after which trying again would end in the same way. */
const FINAL = new Set([1008, 1009, 4400, 4401, 4404, 4409]);

const PULSE = 5000; // ms between two looks at a connection
const QUIET = 2; // looks in a row at which nothing was heard: it is half dead

/**
 * Connects when the first stream starts. A connection that is lost is made
 * again, and the session goes on where it was if the server still has it; if
 * not, its streams are opened anew. It ends with its last stream.
 */
export class Session {
  #url;
  #socket = null;
  #live = false; // the server has said whose session this connection is
  #timer = 0; // until the next attempt to connect
  #pulse = 0;
  #unheard = 0;
  #waits = new Waits();
  #token = ''; // resumes the session, once
  #own; // the server's offer of a session of this connection's own
  #fault; // that the server told of the connection
  #leaving = false; // the server shuts down
  #streams = new Set();
  #sids = 0; // given out

  /** Of the server; it changes when the session could not be resumed. */
  id = '';

  /** @param {string} url ws: or wss: */
  constructor(url) {
    this.#url = url;
  }

  /**
   * A stream to a model, yet to be started.
   * @param {string} model
   * @param {{codec?: string, policy?: object}} options as the protocol's `open` has them
   * @returns {Channel}
   */
  stream(model, options) {
    return new Channel(this, model, options);
  }

  /** Whether what is sent now goes at once. */
  get clear() { return this.#live && !this.#leaving && this.#socket.bufferedAmount === 0; }

  // The rest is for Channel.

  join(stream) {
    this.#streams.add(stream);
    if (this.#live) stream.open(++this.#sids);
    else if (!this.#socket && !this.#timer) this.#connect();
  }

  part(stream) {
    if (!this.#streams.delete(stream)) return;
    if (this.#live && stream.sid) this.say({type: 'close', sid: stream.sid});
    stream.sid = 0;
    if (this.#streams.size === 0) this.#end();
  }

  /** The server has the stream no more. */
  forget(stream) {
    stream.sid = 0;
  }

  say(message) {
    this.#socket.send(JSON.stringify(message));
  }

  send(frame) {
    this.#socket.send(frame);
  }

  #connect() {
    this.#timer = 0;
    this.#unheard = 0;
    this.#fault = this.#own = undefined;
    this.#leaving = false;
    this.#socket = new WebSocket(this.#url, 'millrace.v1');
    this.#socket.onmessage = m => this.#message(JSON.parse(m.data));
    this.#socket.onclose = e => this.#closed(e);
    this.#pulse = setInterval(() => this.#look(), PULSE);
  }

  /** A connection that is half dead has to be noticed while the session can be resumed. */
  #look() {
    if (this.#unheard++ >= QUIET) this.#lost();
    else if (this.#live) this.say({type: 'ping', t: Math.round(performance.now())});
  }

  #message(m) {
    this.#unheard = 0;
    switch (m.type) {
      case 'ready':
        this.#own = m;
        if (this.#token) this.#attach();
        else this.#begin(m);
        return;
      case 'attached':
        this.#resume(m);
        return;
      case 'goaway':
        this.#leaving = true;
        return;
      case 'error':
        if (m.sid !== undefined) break;
        if (!this.#live && !m.fatal) this.#begin(this.#own); // the session is gone
        else this.#fault = m;
        return;
    }
    if (m.sid) [...this.#streams].find(s => s.sid === m.sid)?.take(m);
  }

  #attach() {
    const streams = [...this.#streams].filter(s => s.sid);
    this.say({
      type: 'attach', token: this.#token,
      // Endings do not come in order: what is below the oldest that is missing has come.
      streams: streams.map(s => ({sid: s.sid, last_seq: s.last})),
    });
    this.#token = ''; // it is used up, whether an answer comes or not
  }

  /** A session of this connection's own: the streams are opened anew. */
  #begin(ready) {
    this.#goes(ready);
    for (const stream of this.#streams) stream.open(++this.#sids);
  }

  /** The session from before. */
  #resume(attached) {
    this.#goes(attached);
    const there = new Map(attached.streams.map(s => [s.sid, s]));
    for (const stream of [...this.#streams]) {
      if (stream.resume(there.get(stream.sid))) there.delete(stream.sid);
      else stream.open(++this.#sids);
    }
    for (const sid of there.keys()) this.say({type: 'close', sid}); // stopped meanwhile
  }

  #goes({session, resume_token: token}) {
    this.id = session;
    this.#token = token;
    this.#live = true;
    this.#waits.reset();
  }

  #closed(e) {
    const fault = this.#fault ?? (e.reason ? {code: String(e.code), message: e.reason} : undefined);
    if (FINAL.has(e.code)) {
      for (const stream of [...this.#streams]) stream.finish(fault ?? {code: String(e.code), message: 'the server closed the session'});
      return;
    }
    this.#lost(fault);
  }

  #lost(fault) {
    this.#leave();
    this.#timer = setTimeout(() => this.#connect(), this.#waits.take(fault?.retry_after_ms));
    for (const stream of [...this.#streams]) stream.wait(fault);
  }

  #end() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#token = this.id = '';
    this.#leave()?.close(1000);
  }

  /** Takes the connection off the session. It is not closed: the server would end the session with it. */
  #leave() {
    const socket = this.#socket;
    clearInterval(this.#pulse);
    this.#socket = null;
    this.#live = false;
    if (!socket) return null;
    socket.onmessage = socket.onclose = null;
    if (socket.readyState === WebSocket.CONNECTING) socket.close();
    return socket;
  }
}
