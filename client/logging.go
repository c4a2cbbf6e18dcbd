package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// Logging is the configuration of a server's log.
type Logging struct {
	Level     string `json:"level"`      // least level that is logged: debug, info, warn or error
	Format    string `json:"format"`     // text or json
	File      string `json:"file"`       // to which it is appended, beside standard error; "" = none
	DebugRate int    `json:"debug_rate"` // most lines a second of one model or route at level debug
}

// LoggingChange is a change of a server's log, until its next start.
type LoggingChange struct {
	Level string `json:"level"`
}

// Logging returns the configuration of the server's log.
func (c *Client) Logging(ctx context.Context) (Logging, error) {
	var l Logging
	err := c.doJSON(ctx, http.MethodGet, c.url(url.Values{"own": {"true"}}, "v2", "logging"), nil, &l)
	return l, err
}

// ChangeLogging changes the server's log at run time, and returns the settings in force.
func (c *Client) ChangeLogging(ctx context.Context, change LoggingChange) (Logging, error) {
	var l Logging
	body, err := json.Marshal(change)
	if err != nil {
		return l, err
	}
	err = c.doJSON(ctx, http.MethodPost, c.url(nil, "v2", "logging"), body, &l)
	return l, err
}
