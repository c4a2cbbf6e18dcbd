package ingest

// Settings are the settings of a running server that the extensions trace and logging of
// the Open Inference Protocol read and change. A Backend may have them. They are in force
// until the server's next start. Errors name the setting.
type Settings interface {
	// LogSettings returns the settings of the log: each is a string, a bool or an int.
	LogSettings() map[string]any
	// ChangeLog changes those that are given: each is a string, a bool, or an int64.
	ChangeLog(change map[string]any) error
	// TraceSettings returns the settings of traces; model "" = of the server.
	TraceSettings(model string) (map[string][]string, error)
	// ChangeTraces changes those that are given; a setting without values returns to the
	// configured one.
	ChangeTraces(model string, change map[string][]string) error
}
