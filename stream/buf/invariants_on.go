//go:build invariants

package buf

// Invariants is true when misuse panics in this build.
const Invariants = true

func misuse(msg string) { panic(msg) }

// poison overwrites released memory, so that reads after the last release become visible.
func poison(mem []byte) {
	for i := range mem {
		mem[i] = 0xDB
	}
}
