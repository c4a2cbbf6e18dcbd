// Package recording keeps a stream in one file: its frames as they were sent,
// when, and how each of them ended.
//
// It owns the file's layout, below, and nothing of how frames come or go: it
// works on plain types and must not know servers, clients, models or pictures.
//
// # The file
//
// A file begins with the 8 bytes 89 4D 49 4C 4C 0D 0A 1A, whose line ends show
// when somebody copied it as text, a u32 version, 1, and a u32 of zeros. Records
// follow. All numbers are little endian:
//
//	u32  length of the body
//	u32  CRC-32C of the length and the body
//	     the body:
//	u8   kind, and 3 zero bytes
//	u32  length of the JSON
//	u64  seq
//	i64  at: nanoseconds since the recording started
//	     the JSON
//	     data: the rest
//
//	kind       JSON       data
//	H header   Header     none; the first record, and only that
//	F frame    of Frame   the payload, byte for byte as it was sent
//	E ending   of Ending  outputs: an Open Inference Protocol response of
//	                      "outputs_header" bytes of JSON, and the raw tensors
//	I index    none       u64 offset of the index before it, 0 = none, then for each
//	                      frame and ending since that one u64 kind, u64 seq,
//	                      u64 offset, i64 at; seq of the record: how many
//	Z end      none       u64 offset of the last index, 0 = none; the last record
//
// Frames are in ascending order of seq; endings come whenever they came, and a
// frame may have several: the partial ones, then the last. A frame whose ending
// was never seen has none. Kinds that are not known are passed over.
//
// A file without its end, of a program that was killed, is read up to its last
// whole record: the index is then made anew by reading all of it.
package recording
