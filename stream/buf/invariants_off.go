//go:build !invariants

package buf

// Invariants is true when misuse panics in this build.
const Invariants = false

func misuse(string) {}

func poison([]byte) {}
