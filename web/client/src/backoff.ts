// The time to wait before trying again.

const FIRST = 500,
  LONGEST = 8000; // ms

/** An exponential back-off with jitter, in ms. */
export class Backoff {
  #wait = FIRST;

  /**
   * The next wait, ms. Random, so that the clients of a restarted server do not all connect at once.
   * @param least added to the wait: ms, as the server asks
   */
  next(least = 0): number {
    const wait = least + this.#wait * (0.5 + Math.random());
    this.#wait = Math.min(2 * this.#wait, LONGEST);
    return wait;
  }

  /** After a success: the next wait is short again. */
  reset(): void {
    this.#wait = FIRST;
  }
}
