package ingest

// Settings are the settings of a running server for the extensions trace and logging of the Open Inference Protocol.
// A Backend may implement Settings. Changes last until the server's next start. Errors name the setting.
type Settings interface {
	// LogSettings returns the settings of the log: each is a string, a bool or an int.
	LogSettings() map[string]any
	// ChangeLog changes the given settings; each value is a string, a bool, or an int64.
	ChangeLog(change map[string]any) error
	// TraceSettings returns the settings of traces; model "" = of the server.
	TraceSettings(model string) (map[string][]string, error)
	// ChangeTraces changes the given settings; a setting without values returns to the configured value.
	ChangeTraces(model string, change map[string][]string) error
}
