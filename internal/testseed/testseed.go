// Package testseed provides the first seed of tests with random input, so that a variable can repeat a failed run.
package testseed

import (
	"os"
	"strconv"
)

// Variable is the name of the environment variable with the first seed.
const Variable = "MILLRACE_TEST_SEED"

// First returns the first seed: the value of Variable, or 1 if unset. First panics if the value is not a number.
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
