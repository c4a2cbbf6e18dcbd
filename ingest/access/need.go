package access

import "millrace/internal/role"

// Need is the role and the models that a call needs. The zero Need names no role and is refused.
type Need struct {
	Role  role.Role
	Model string // the model of the call; "" = see Scope
	Scope Scope
}

// Scope says which models a call uses when Need.Model is empty.
type Scope uint8

// The scopes.
const (
	// ServerScope is a call about the whole server. A client with a limited list of models is refused.
	ServerScope Scope = iota
	// ClientScope is a call about the models of the client, such as a list of models.
	ClientScope
	// LaterScope is a call whose message names the model. The adapter calls Client.Authorize when the
	// message is read. Gate.Enter leaves the count to Client.Authorize if the client's models are limited.
	LaterScope
)
