package difference

// Tracks is how the ids that trackers gave to matched boxes differ. An id is only
// a name: two trackers agree when each id of A goes with one id of B, whatever
// their numbers are.
type Tracks struct {
	Compared int `json:"compared"` // matched boxes with an id in both
	Switched int `json:"switched"` // of them, those whose ids did not go together before
	OneOnly  int `json:"one_only"` // matched boxes with an id in one only

	ofA map[int64]int64 // A's id to B's
	ofB map[int64]int64 // and back
}

// add compares the ids of two matched boxes, and says whether they agree. Ids
// that do not go together begin to: each switch counts once.
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
