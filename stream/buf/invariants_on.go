//go:build invariants

package buf

// Invariants says that misuse panics in this build.
const Invariants = true

func misuse(msg string) { panic(msg) }

// poison overwrites released memory, so that reads after the last release are noticed.
func poison(mem []byte) {
	for i := range mem {
		mem[i] = 0xDB
	}
}
