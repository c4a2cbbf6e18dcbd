//go:build invariants

package buf

// Invariants says that misuse panics in this build.
const Invariants = true

func misuse(msg string) { panic(msg) }

// poison makes reads after the last release visible.
func poison(mem []byte) {
	for i := range mem {
		mem[i] = 0xDB
	}
}
