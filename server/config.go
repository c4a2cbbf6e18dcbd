package server

import "millrace/config"

// Config is everything that can be set. A zero field takes its default.
type Config = config.Config

// Off as an address keeps a protocol away.
const Off = config.Off
