//go:build !soak

package server_test

import "time"

const soakTime = 8 * time.Second
