package stream

// App describes the HTTP routes of a model that is a program with routes of its own.
type App struct {
	Style   string  // names the system that the program was written for
	Routes  []Route // in the program's order
	OpenAPI []byte  // the OpenAPI document of the routes, in JSON; nil = none
	Extra   Params  // what the style needs besides
	// Parts describes the stages and graphs of a program of several, in JSON:
	// {"stages": [...], "graphs": [...]}, as docs/process.md has it; nil = it has none.
	Parts []byte
}

// Route is one route of a program.
type Route struct {
	Method      string // GET or POST
	Path        string // begins with a slash; relative to where the program is served
	Endpoint    string // what the program calls it
	Model       string // the model that runs its requests; "" = the one that has the App
	Events      bool   // it is answered by server-sent events, one for each answer
	OpenAI      bool   // it has OpenAI's form: events if the body has "stream": true, and [DONE] behind them
	ContentType string // of its answers; "" = what each reply says
}

// Call is the HTTP request that a frame was made of, for a route of a program. Its body is
// the frame's payload.
type Call struct {
	Endpoint    string // Route.Endpoint
	Method      string
	Path        string // relative to where the program is served
	Query       string // as sent, without the question mark
	ContentType string
	Header      map[string]string // other headers, by name in lower case
	User        string            // who was authenticated, or ""
}

// Reply is what a program says of its HTTP response besides the body, which is the only
// element of the only output.
type Reply struct {
	Status      int    // 0 = 200
	ContentType string // "" = the route's
	Header      map[string]string
}
