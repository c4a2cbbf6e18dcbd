// Package testseed gives tests with random input their first seed, so that one
// variable repeats what failed.
package testseed

import (
	"os"
	"strconv"
)

// Variable is the name of the environment variable that holds the first seed.
const Variable = "MILLRACE_TEST_SEED"

// First returns the first seed, which is 1 unless Variable says otherwise. It
// panics when the variable is not a number.
func First() uint64 {
	s := os.Getenv(Variable)
	if s == "" {
		return 1
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		panic(Variable + ": " + err.Error())
	}
	return n
}
