// Package clips writes parts of videos to files, as the source sent them: on events, from some time before the event
// to some time after, or always. Beside each video are its events, the objects of its frames, and pictures of the
// events.
//
// The package owns the folder of clips, its retention, and the memory of compressed packets before an event. The
// package must not know models, and knows of an event only the id, the type and the time.
//
// A Recorder has the packets of one stream. The first packet of a clip is a key frame. A clip ends when its time is
// over, and early, with the reason in Clip.Cut, when the packets do not continue or cannot be written. A Store has the
// clips of a folder: DAY/STREAM/TIME-RANDOM.mp4, with .json (Clip), .boxes.jsonl, and the pictures N.jpg and
// N.boxes.jpg of the N-th picture. The video is fragmented while the clip grows, and has an index afterwards. A Store
// locks its folder.
package clips
