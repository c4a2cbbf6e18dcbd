// Package processors divides the processors of the machine between short steps, on which streams wait, and long
// computations, such as the JSON of large tensors and the decoding of large pictures. The package also sets how
// often the garbage collector runs. It must not know what computes.
//
// # Why Go's scheduler alone does not do
//
// Go has no priorities. A goroutine that computes keeps its processor for 10 ms. A call into C keeps the processor
// for up to 10 ms, too. While all processors are busy, Go looks for data from the network only every 10 ms. A step
// of a stream takes fractions of a millisecond and waits for each of these, several times a frame.
//
// # Mechanisms, and the rows of millrace-bench that pay for each
//
//   - Double: twice as many processors for Go as the machine has, so that the operating system divides the real
//     processors. Row "REST tensor, 1 KB" (-rows rest).
//   - Turns.Begin, Turns.End: long computations of requests run one less at once than there are processors. Row
//     "attackers: json" (-rows attacks).
//   - Turns.Occupy, and the pause after a turn: the decoding of a large picture takes a processor from the turns. Row
//     "all attackers" (-rows attack).
//   - Heap: the memory limit of Go's runtime from the memory budget (TestUnreadAnswersInLittleMemory, -rows unread).
//     A reserve, so that the collector of a small heap runs seldom: row "REST tensor, 1 KB" (-rows rest).
//
// docs/adr/011-processors.md and docs/adr/029-hostile-clients.md have the figures. The fair queue of large pictures
// is in package batching, since the queue holds tokens of streams.
//
// The package has no variables. GOMAXPROCS and the memory limit of the heap belong to the whole process, so that
// Double and Heap change the process: only one server of a process may have a Heap.
package processors
