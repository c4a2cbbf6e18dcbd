package server

import "millrace/config"

// Config has all settings. A zero field means the default.
type Config = config.Config

// Off as an address turns a protocol off.
const Off = config.Off
