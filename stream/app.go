package stream

// App describes the HTTP routes of a model that is a program with its own routes.
type App struct {
	Style   string  // names the serving system for which the program was written
	Routes  []Route // in the program's order
	OpenAPI []byte  // the OpenAPI document of the routes, in JSON; nil = none
	Extra   Params  // further settings of the style
	// Parts describes the stages and graphs of a program with several parts, in JSON: {"stages": [...], "graphs":
	// [...]}, as in docs/process.md; nil = none.
	Parts []byte
}

type Route struct {
	Method      string // GET or POST
	Path        string // begins with a slash; relative to where the program is served
	Endpoint    string // the program's name for the endpoint
	Model       string // the model that runs its requests; "" = the one that has the App
	Events      bool   // the answers are server-sent events
	OpenAI      bool   // it has OpenAI's form: events if the body has "stream": true, and [DONE] behind them
	ContentType string // of its answers; "" = what each reply says
}

// Call is the HTTP request behind a frame, for a route of a program. The frame's payload is the request body.
type Call struct {
	Endpoint    string // Route.Endpoint
	Method      string
	Path        string // relative to where the program is served
	Query       string // as sent, without the question mark
	ContentType string
	Header      map[string]string // other headers, keyed by lower-case name
	User        string            // who was authenticated, or ""
}

// Reply is the program's HTTP response except for the body. The only element of the only output is the body.
type Reply struct {
	Status      int    // 0 = 200
	ContentType string // "" = the route's
	Header      map[string]string
}
