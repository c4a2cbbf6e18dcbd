package child

import "time"

// SetEndLimit changes the time for the end of the descendants of an ended child.
func SetEndLimit(d time.Duration) { endLimit = d }
