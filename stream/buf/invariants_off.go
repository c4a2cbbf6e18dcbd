//go:build !invariants

package buf

// Invariants says that misuse panics in this build.
const Invariants = false

func misuse(string) {}

func poison([]byte) {}
