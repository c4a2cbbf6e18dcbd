//go:build soak

package server_test

import "time"

const soakTime = 30 * time.Minute
