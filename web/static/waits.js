// How long to wait before trying again.

const FIRST = 500, LONGEST = 8000; // ms

/** Waits that grow, in ms. */
export class Waits {
  #next = FIRST;

  /**
   * The next one. Random, so that the clients of a server that comes back do not all come at once.
   * @param {number} least ms before it that the server asks for
   */
  take(least = 0) {
    const wait = least + this.#next * (0.5 + Math.random());
    this.#next = Math.min(2 * this.#next, LONGEST);
    return wait;
  }

  /** It went well: the next one is short again. */
  reset() {
    this.#next = FIRST;
  }
}
