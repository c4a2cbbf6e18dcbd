package grpc

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/inferencepb"
	"millrace/internal/role"
	"millrace/stream"
)

// Roles maps the full name of each method to the role needed. The server does not start with a method without a role.
// Methods that may carry settings need role.Manage when a message does carry settings.
var Roles = map[string]role.Role{
	"/inference.GRPCInferenceService/ServerLive":                   role.Open,
	"/inference.GRPCInferenceService/ServerReady":                  role.Open,
	"/inference.GRPCInferenceService/ModelReady":                   role.Infer,
	"/inference.GRPCInferenceService/ServerMetadata":               role.Infer,
	"/inference.GRPCInferenceService/ModelMetadata":                role.Infer,
	"/inference.GRPCInferenceService/ModelConfig":                  role.Infer,
	"/inference.GRPCInferenceService/ModelInfer":                   role.Infer,
	"/inference.GRPCInferenceService/ModelStreamInfer":             role.Infer,
	"/inference.GRPCInferenceService/ModelStatistics":              role.Watch,
	"/inference.GRPCInferenceService/RepositoryIndex":              role.Infer,
	"/inference.GRPCInferenceService/RepositoryModelLoad":          role.Manage,
	"/inference.GRPCInferenceService/RepositoryModelUnload":        role.Manage,
	"/inference.GRPCInferenceService/ModelList":                    role.Infer,
	"/inference.GRPCInferenceService/ModelLoad":                    role.Manage,
	"/inference.GRPCInferenceService/ModelUnload":                  role.Manage,
	"/inference.GRPCInferenceService/WorkerLoad":                   role.Manage,
	"/inference.GRPCInferenceService/WorkerUnload":                 role.Manage,
	"/inference.GRPCInferenceService/HasHardware":                  role.Infer,
	"/inference.GRPCInferenceService/SystemSharedMemoryStatus":     role.Infer,
	"/inference.GRPCInferenceService/SystemSharedMemoryRegister":   role.Manage,
	"/inference.GRPCInferenceService/SystemSharedMemoryUnregister": role.Manage,
	"/inference.GRPCInferenceService/CudaSharedMemoryStatus":       role.Infer,
	"/inference.GRPCInferenceService/CudaSharedMemoryRegister":     role.Manage,
	"/inference.GRPCInferenceService/CudaSharedMemoryUnregister":   role.Manage,
	"/inference.GRPCInferenceService/TraceSetting":                 role.Watch,
	"/inference.GRPCInferenceService/LogSettings":                  role.Watch,

	"/grpc.health.v1.Health/Check": role.Open,
	"/grpc.health.v1.Health/Watch": role.Open,
	"/grpc.health.v1.Health/List":  role.Watch,

	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      role.Infer,
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": role.Infer,
}

// checkRoles returns an error if a method of s has no role.
func checkRoles(s *grpc.Server) error {
	for service, info := range s.GetServiceInfo() {
		for _, m := range info.Methods {
			if name := "/" + service + "/" + m.Name; Roles[name] == 0 {
				return fmt.Errorf("grpc: %s has no role", name)
			}
		}
	}
	return nil
}

// enter returns ctx with the client of a call, or an error if the client may not call the method. Clients of unknown
// methods enter too, so that clients without credentials learn nothing.
func (s *service) enter(ctx context.Context, method string, md metadata.MD) (context.Context, error) {
	needed, known := Roles[method]
	elsewhere := needed == role.Manage && s.isElsewhere(ctx)
	ctx, err := withSize(ctx, needed, md)
	switch {
	case err != nil:
		return nil, statusError(err)
	case s.OpenHealth && method == modelReady:
		needed = role.Open
	case !known, elsewhere:
		needed = role.Infer
	}
	client, err := s.gate.Enter(ctx, credentialsOf(ctx, md), access.Need{Role: needed, Scope: access.LaterScope})
	if err == nil && known && needed != role.Open {
		markRequestSent(ctx)
	}
	ctx = context.WithValue(ctx, ingest.ClientKey{}, client)
	if err != nil {
		if needed == role.Manage { // the message, with the target's name, stays unread
			s.audit(ctx, method, "", err)
		}
		return nil, statusError(err)
	}
	if elsewhere {
		service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
		// as gRPC answers unknown methods
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s for service %s", name, service)
	}
	return ctx, nil
}

// credentialsOf returns the credentials of a call: the metadata's credentials and the client certificate.
func credentialsOf(ctx context.Context, md metadata.MD) access.Credentials {
	c := access.Credentials{Certificates: certificates(ctx), Conn: connOf(ctx)}
	for _, name := range []string{access.KeyName, "rpc-auth-header"} {
		for _, key := range md[name] {
			c.Key(key)
		}
	}
	for _, value := range md["authorization"] {
		c.Key(access.Bearer(value))
	}
	c.Forwarded = forwarded(md)
	return c
}

// forwarded returns the last value of x-forwarded-for in the metadata of a call, or "".
func forwarded(md metadata.MD) string {
	all := md["x-forwarded-for"]
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// modelReady is a method that a setting opens to everybody.
const modelReady = "/inference.GRPCInferenceService/ModelReady"

// mayAskHealth returns an error for a client that may not ask whether a model is ready. Everybody may ask for the
// health of the server.
func (s *service) mayAskHealth(ctx context.Context, model string) error {
	if model == "" || s.OpenHealth || !s.gate.Required() {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	client, err := s.gate.Identify(ctx, credentialsOf(ctx, md)) // a probe does not count in the quotas
	if err == nil {
		err = client.CheckRights(access.Need{Role: role.Infer, Model: model})
	}
	if err != nil {
		return statusError(err)
	}
	return nil
}

// isElsewhere reports whether only another address answers calls that need role.Manage.
func (s *service) isElsewhere(ctx context.Context) bool {
	if !s.ManagementOnly {
		return false
	}
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return true
	}
	a, ok := p.Addr.(*clientAddr)
	return !ok || !a.management
}

// client returns the client of a call.
func client(ctx context.Context) *ingest.Client {
	return ingest.ClientOf(ctx.Value(ingest.ClientKey{}))
}

// endsWithCredentials ends a call with streams as soon as the client's credentials become invalid, even while the
// call waits for a client that reads nothing. The reason is then sent to revoked, which must have room. The caller
// calls ended after the call.
func (s *service) endsWithCredentials(ctx context.Context, revoked chan<- error) (ended func()) {
	call, ok := s.incoming(ctx)
	return client(ctx).OnEnd(func(err error) {
		revoked <- err
		if ok {
			_ = call.WriteStatus(status.Convert(statusError(err))) // ends ctx
		} else {
			endCall(ctx, err)
		}
	})
}

// manages reports whether a call needs role.Manage: always for its method, or because the message changes settings.
func manages(method string, in any) bool {
	switch in := in.(type) {
	case *inferencepb.TraceSettingRequest:
		return len(in.Settings) > 0
	case *inferencepb.LogSettingsRequest:
		return len(in.Settings) > 0
	}
	return Roles[method] == role.Manage
}

// targetOf returns the name of a management call's target, or "".
func targetOf(in any) string {
	switch in := in.(type) {
	case interface{ GetModelName() string }:
		return in.GetModelName()
	case interface{ GetName() string }:
		return in.GetName()
	}
	return ""
}

// audit writes a line about a management call to the audit log.
func (s *service) audit(ctx context.Context, method, target string, err error) {
	var from net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr
		if a, ok := from.(*clientAddr); ok {
			from = a.Addr // the inner address knows whether a proxy reported the address
		}
	}
	if st, ok := status.FromError(err); ok && err != nil { // an error returned by the method
		is := stream.Unavailable
		for code, to := range statusCodes {
			if to == st.Code() && to != codes.Unavailable && code != stream.TooLarge {
				is = code
			}
		}
		err = stream.Errorf(is, "", "%s", st.Message())
	}
	md, _ := metadata.FromIncomingContext(ctx)
	s.gate.Audit(access.Act{By: client(ctx).Principal(), Remote: from, Forwarded: forwarded(md), Protocol: "grpc",
		Verb: method, Target: target, Err: err})
}

// certificates returns the client's certificate followed by the chain sent by the client, or nil.
func certificates(ctx context.Context) []*x509.Certificate {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return nil
	}
	info, _ := p.AuthInfo.(credentials.TLSInfo)
	return info.State.PeerCertificates
}

// mayManage returns an error if the client of a call lacks role.Manage, or the call came to an address without
// management.
func (s *service) mayManage(ctx context.Context) error {
	if s.isElsewhere(ctx) {
		return stream.Errorf(stream.Unsupported, "settings", "cannot be changed at this address")
	}
	return client(ctx).CheckRights(access.Need{Role: role.Manage, Scope: access.ClientScope})
}

// mayInfer returns an error if the client of an inference call may not use a model.
func mayInfer(ctx context.Context, model string) error {
	return client(ctx).Authorize(access.Need{Role: role.Infer, Model: model, Scope: access.ClientScope})
}

// mayUse returns an error if a client limited to some models calls a method for another model, or calls a method
// whose message names no model.
func mayUse(ctx context.Context, method string, in any) error {
	if !client(ctx).Principal().Limited() {
		return nil
	}
	need := access.Need{Role: Roles[method], Scope: access.ClientScope}
	switch in := in.(type) {
	case *call, *inferencepb.ModelInferRequest: // frame checks the model
		return nil
	case *inferencepb.ModelMetadataRequest, *inferencepb.ModelReadyRequest, *inferencepb.ModelConfigRequest,
		*inferencepb.RepositoryModelLoadRequest, *inferencepb.RepositoryModelUnloadRequest,
		*inferencepb.ModelLoadRequest, *inferencepb.ModelUnloadRequest, *inferencepb.WorkerLoadRequest,
		*inferencepb.WorkerUnloadRequest:
		if need.Model = targetOf(in); need.Model == "" {
			need.Scope = access.ServerScope
		}
	case *inferencepb.ModelListRequest, *inferencepb.HasHardwareRequest, *inferencepb.ServerLiveRequest,
		*inferencepb.ServerReadyRequest, *inferencepb.ServerMetadataRequest, *inferencepb.RepositoryIndexRequest,
		*inferencepb.ModelStatisticsRequest, *grpc_health_v1.HealthCheckRequest:
	default:
		need.Scope = access.ServerScope
	}
	return client(ctx).Authorize(need)
}
