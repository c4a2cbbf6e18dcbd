package setting

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Suggest returns " (did you mean x?)" with the known word most similar to word, or "" if none is similar.
func Suggest(word string, known []string) string {
	best, at := "", max(2, len(word)/3)+1
	for _, k := range known {
		if d := distance(word, k); d < at && d < len(k) {
			best, at = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}

// SuggestPath returns " (did you mean PATH?)" with the path that has all words of unknown (if several), such as
// batching.max_size for max_batch_size or batching.size, and the fewest further words; else with the nearest path,
// like Suggest; or "".
func SuggestPath(unknown string, paths []string) string {
	words := wordsOf(unknown)
	best, others := "", 0
	for _, path := range paths {
		of := wordsOf(path)
		if len(words) < 2 || path == unknown || slices.ContainsFunc(words, func(w string) bool {
			return !slices.ContainsFunc(of, func(o string) bool { return sameWord(w, o) })
		}) {
			continue
		}
		if n := len(of) - len(words); best == "" || n < others {
			best, others = path, n
		}
	}
	if best == "" {
		return Suggest(unknown, paths)
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}

func wordsOf(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '_' })
}

// sameWord reports whether two words are the same, also as in batch and batching.
func sameWord(a, b string) bool {
	return a == b || min(len(a), len(b)) > 3 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
}

// Resembles reports whether a word is a known word with a typing error. Words of up to 4 letters resemble too many
// words.
func Resembles(word string, known []string) bool {
	return len(word) > 4 && slices.ContainsFunc(known, func(k string) bool {
		return distance(word, k) <= max(1, len(word)/4)
	})
}

// distance returns the number of letters to add, remove or change.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return math.MaxInt
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
