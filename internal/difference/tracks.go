package difference

// Tracks compares the track ids of matched boxes. Two trackers agree when each id of A corresponds to one id of B,
// whatever the numbers are.
type Tracks struct {
	Compared int `json:"compared"` // matched boxes with an id in both
	Switched int `json:"switched"` // number of these boxes whose ids corresponded to different ids before
	OneOnly  int `json:"one_only"` // matched boxes with an id on a single side

	ofA map[int64]int64 // B's id by A's
	ofB map[int64]int64 // A's id by B's
}

// add compares the ids of two matched boxes, and reports whether they agree. After a switch the new ids correspond,
// so each switch counts once.
func (t *Tracks) add(a, b int64) bool {
	if a == 0 || b == 0 {
		if a != b {
			t.OneOnly++
		}
		return a == b
	}
	t.Compared++
	if t.ofA == nil {
		t.ofA, t.ofB = map[int64]int64{}, map[int64]int64{}
	}
	oldB, knownA := t.ofA[a]
	oldA, knownB := t.ofB[b]
	t.ofA[a], t.ofB[b] = b, a
	if (knownA && oldB != b) || (knownB && oldA != a) {
		t.Switched++
		return false
	}
	return true
}
