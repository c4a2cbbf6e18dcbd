// Package apps is the adapter of the HTTP routes that programs declare (stream.App): at
// /apps/NAME/ and, for a program that is served alone, at the root.
//
// It makes a frame with a stream.Call of a request, and a response of the result and its
// stream.Reply, or a server-sent event of each answer. What a program has besides its routes
// because of what it was written for is a Style, in a file of its own. It must not know
// workers or their processes.
package apps
