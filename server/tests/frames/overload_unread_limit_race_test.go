//go:build race

package frames_test

// unreading is the number of clients in TestUnreadAnswers: few, since all have to wait at the same time,
// and each for a few seconds at most.
const unreading = 6
