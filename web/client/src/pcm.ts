// The audio worklet that collects samples of a microphone into frames.

declare abstract class AudioWorkletProcessor {
  readonly port: MessagePort;
}
declare function registerProcessor(
  name: string,
  processor: new (node: AudioWorkletNodeOptions) => AudioWorkletProcessor,
): void;

class Collector extends AudioWorkletProcessor {
  readonly #make: () => Int16Array<ArrayBuffer> | Float32Array<ArrayBuffer>;
  readonly #scale: number; // of samples from -1 to 1
  #frame;
  #at = 0;

  constructor({processorOptions: {samples, codec}}: AudioWorkletNodeOptions) {
    super();
    this.#make = () => (codec === 'pcm16' ? new Int16Array(samples) : new Float32Array(samples));
    this.#scale = codec === 'pcm16' ? 32767 : 1;
    this.#frame = this.#make();
  }

  process([[channel = new Float32Array()] = []]: Float32Array[][]): boolean {
    for (const sample of channel) {
      this.#frame[this.#at++] = Math.max(-1, Math.min(1, sample)) * this.#scale;
      if (this.#at < this.#frame.length) continue;
      this.port.postMessage(this.#frame.buffer, [this.#frame.buffer]);
      this.#frame = this.#make();
      this.#at = 0;
    }
    return true;
  }
}

registerProcessor('millrace-pcm', Collector);
