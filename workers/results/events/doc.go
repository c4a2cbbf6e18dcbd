// Package events applies the rules of a stream to its tracked objects: objects that cross lines, and that enter, stay
// in, crowd and leave zones, become events.
//
// The engine knows no clock but the times of frames, so the same frames give the same events, with other ids. An
// object's path is the straight moves of its anchor from frame to frame. Package internal/plane decides exactly
// whether a move crosses a line and whether an anchor is in a zone; a crossing becomes an event when the crossing is
// certain:
//
//   - of a line, when the object is the margin away from the line, or has vanished. The margin is at most half of the
//     room between the line and the edge of the picture. An object that moves back over the line before has
//     not crossed the line; an object that moves back around an end of the line has.
//   - of a zone's edge, when the object is the margin away from all edges, or has not moved back for the settling
//     time, or has vanished. In a zone the margin is at most about half of the way from the edge to the middle.
//
// An object without a box goes on from its last place for the inertia, or until the tracker ends the id if that is
// later. Each zone counts as many leaves as enters for the objects that have gone. The number of objects for a count
// has no margin: each time that the number is exceeded again may be an event.
//
// Only stage.go, which makes the engine a stage after runs, knows streams and tensors.
package events
