package apps

// Programs in the form of this server's own services.
func init() {
	register(&Style{
		Name:  "millrace",
		Forms: true,
		End:   func(*Exchange) (string, []byte) { return "end", []byte("{}") }, // as infer_stream ends
	})
}
