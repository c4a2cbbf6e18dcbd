package apps

// millraceStyle is the style of programs in the form of this server's own services.
var millraceStyle = &Style{
	Name:  "millrace",
	Forms: true,
	End:   func(*Exchange) (string, []byte) { return "end", []byte("{}") }, // as infer_stream ends
}
