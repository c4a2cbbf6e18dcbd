//go:build !race

package motion

const racing = false
