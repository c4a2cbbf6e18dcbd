// Package frames tests what becomes of frames and requests, in files by topic:
//   - faults: each frame has exactly one outcome, whatever fails: workers, sources, clients or the server process.
//     TestSoak runs the faults at random for as long as its flag says.
//   - overload: clients who ask for too much, send large inputs or read nothing do not hold up other clients.
//   - streams: streams of pictures and sound: server streams, folders, pulls, regions and windows.
package frames
