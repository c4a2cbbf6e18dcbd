package server

import (
	"net/http"
	"net/http/pprof"
	"strconv"

	"millrace/config"
)

// maxProfile is the longest duration of a profile or trace, in seconds.
const maxProfile = 300

// profiles registers the routes of metrics.pprof, without the route of the command line, since addresses of sources
// may contain passwords.
func profiles(mux *http.ServeMux) {
	const at = config.ProfilesRoute
	for path, h := range map[string]http.HandlerFunc{"/": pprof.Index, "/profile": pprof.Profile,
		"/trace": pprof.Trace, "/symbol": pprof.Symbol} {
		mux.HandleFunc(at+path, func(w http.ResponseWriter, r *http.Request) {
			if text := r.FormValue("seconds"); text != "" {
				if s, err := strconv.ParseFloat(text, 64); err != nil || !(s > 0 && s <= maxProfile) {
					http.Error(w, "seconds: want a number of more than 0, and at most "+strconv.Itoa(maxProfile),
						http.StatusBadRequest)
					return
				}
			}
			h(w, r)
		})
	}
	mux.Handle(at+"/cmdline", http.NotFoundHandler())
}
