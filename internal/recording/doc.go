// Package recording writes and reads recordings: files with the frames of a stream as sent, the times of sending, and
// the endings of the frames.
//
// The package owns the file format described below. The package works on plain types and must not know servers,
// clients, models or pictures.
//
// # The file
//
// A file begins with the 8 bytes 89 4D 49 4C 4C 0D 0A 1A (the line ends detect a copy made as text), a u32 version,
// 1, and a u32 of zeros. Records follow. All numbers are little endian:
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
//	H header   Header     none; the first record only
//	F frame    of Frame   the payload, byte for byte as sent
//	E ending   of Ending  outputs: an Open Inference Protocol response of
//	                      "outputs_header" bytes of JSON, and the raw tensors
//	I index    none       u64 offset of the previous index, 0 = none, then for each
//	                      frame and ending since the previous index one u64 kind,
//	                      u64 seq, u64 offset, i64 at; seq of the record: how many
//	Z end      none       u64 offset of the last index, 0 = none; the last record
//
// Frames are in ascending order of seq. Endings are in the order of their arrival. A frame may have several endings:
// the partial endings, then the last. A frame whose ending did not arrive has none. Unknown kinds are skipped.
//
// A file without its end, because the program was killed, can be read up to its last complete record: the reader then
// rebuilds the index by reading the whole file.
package recording
