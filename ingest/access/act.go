package access

import "net"

// Act is an administrative act of a client.
type Act struct {
	By        *Principal // the acting or refused client; nil = unknown
	Remote    net.Addr   // the address of the connection; nil = none
	Forwarded string     // as in Credentials
	Address   string     // of the client, in place of Remote and Forwarded; "" = by these
	Protocol  string     // http, grpc, native, signal
	Verb      string     // the route or the method
	Target    string     // the name sent by the client
	Err       error
	Status    int // of HTTP, for answers without an error
}
