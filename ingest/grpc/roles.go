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
	"millrace/internal/inferencepb"
	"millrace/internal/role"
	"millrace/stream"
)

// Roles are the roles that calls need, by the full name of their method. The server does not start with a method
// that has none. Those that change settings when they have some need role.Manage then.
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

// authenticated returns ctx with the principal of a call, or the error of one that may not call the method. One
// of an unknown method is authenticated, too, so that clients without credentials learn nothing.
func (s *service) authenticated(ctx context.Context, method string, md metadata.MD) (context.Context, error) {
	needed, known := Roles[method]
	elsewhere := needed == role.Manage && s.isElsewhere(ctx)
	ctx, err := withSize(ctx, needed, md)
	switch {
	case err != nil:
		return nil, statusError(err)
	case needed == role.Open, s.openHealth && method == modelReady:
		return ctx, nil
	case !known, elsewhere:
		needed = role.Infer
	}
	var p *ingest.Principal
	if s.auth != nil {
		p, err = s.auth(ctx, md, certificates(ctx), needed)
	}
	if err == nil {
		if p != nil {
			ctx = context.WithValue(ctx, ingest.PrincipalKey{}, p)
		}
		err = s.account(ctx).Core().Take(stream.QuotaRequests, 1, 0)
	}
	if err == nil && known {
		spoke(ctx)
	}
	if err != nil {
		if needed == role.Manage { // its message, which names the target, is not read
			s.audited(ctx, p, method, "", err)
		}
		return nil, statusError(err)
	}
	if elsewhere {
		service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s for service %s", name, service) // as gRPC answers unknown methods
	}
	return ctx, nil
}

// modelReady is a method that a setting opens to everybody.
const modelReady = "/inference.GRPCInferenceService/ModelReady"

// mayAskHealth returns an error for a client that may not ask whether a model is ready. The health of the server is open.
func (s *service) mayAskHealth(ctx context.Context, model string) error {
	if model == "" || s.openHealth || s.auth == nil {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	p, err := s.auth(ctx, md, certificates(ctx), role.Infer)
	if err == nil {
		err = p.AllowsModel(model)
	}
	if err != nil {
		return statusError(err)
	}
	return nil
}

// isElsewhere reports whether calls that need role.Manage are not answered on the connection of a call.
func (s *service) isElsewhere(ctx context.Context) bool {
	if !s.apart {
		return false
	}
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return true
	}
	a, ok := p.Addr.(*clientAddr)
	return !ok || !a.management
}

// stillValid returns an error if the credentials with which a call was begun are not valid any more.
func (s *service) stillValid(ctx context.Context) error {
	p := principal(ctx)
	if s.still == nil || p == nil {
		return nil
	}
	return s.still(p)
}

// account returns the account of the client of a call, or nil.
func (s *service) account(ctx context.Context) *ingest.Account {
	of := principal(ctx)
	switch {
	case s.accounts == nil:
		return nil
	case of != nil:
		return s.accounts(of, nil, "")
	}
	return s.accounts(nil, connOf(ctx), forwarded(ctx))
}

// forwarded returns the last value of x-forwarded-for in a call, or "".
func forwarded(ctx context.Context) string {
	if all := metadata.ValueFromIncomingContext(ctx, "x-forwarded-for"); len(all) > 0 {
		return all[len(all)-1]
	}
	return ""
}

// endsWithCredentials ends a call with streams at once when the credentials of its client are not valid any more, also while it
// waits for a client that reads nothing. revoked, which has room, then has the reason. The caller calls ended after the call.
func (s *service) endsWithCredentials(ctx context.Context, revoked chan<- error) (ended func()) {
	call, ok := grpc.ServerTransportStreamFromContext(ctx).(incoming)
	if s.lasting == nil || !ok {
		return func() {}
	}
	return s.lasting.Add(principal(ctx), func(err error) {
		revoked <- err
		_ = call.WriteStatus(status.Convert(statusError(err))) // which ends ctx
	})
}

// manages reports whether a call of a method needs role.Manage: by itself, or because its message changes settings.
func manages(method string, in any) bool {
	switch in := in.(type) {
	case *inferencepb.TraceSettingRequest:
		return len(in.Settings) > 0
	case *inferencepb.LogSettingsRequest:
		return len(in.Settings) > 0
	}
	return Roles[method] == role.Manage
}

// targetOf returns what a call that manages names, or "".
func targetOf(in any) string {
	switch in := in.(type) {
	case interface{ GetModelName() string }:
		return in.GetModelName()
	case interface{ GetName() string }:
		return in.GetName()
	}
	return ""
}

// audited calls Options.Audit.
func (s *service) audited(ctx context.Context, of *ingest.Principal, method, target string, err error) {
	if s.audit == nil {
		return
	}
	var from net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr
		if a, ok := from.(*clientAddr); ok {
			from = a.Addr // which says whether it is that of a proxy
		}
	}
	if st, ok := status.FromError(err); ok && err != nil { // what the method has returned
		is := stream.Unavailable
		for code, to := range statusCodes {
			if to == st.Code() && to != codes.Unavailable && code != stream.TooLarge {
				is = code
			}
		}
		err = stream.Errorf(is, "", "%s", st.Message())
	}
	s.audit(of, from, forwarded(ctx), method, target, err)
}

// certificates returns the certificate that a client has shown, with those that it has sent after it, or nil.
func certificates(ctx context.Context) []*x509.Certificate {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return nil
	}
	info, _ := p.AuthInfo.(credentials.TLSInfo)
	return info.State.PeerCertificates
}

// mayManage returns an error if the principal of a call has not role.Manage, or the call did not come to where that is used.
func (s *service) mayManage(ctx context.Context) error {
	if s.isElsewhere(ctx) {
		return stream.Errorf(stream.Unsupported, "settings", "cannot be changed at this address")
	}
	if s.auth == nil {
		return nil
	}
	p := principal(ctx)
	if p == nil {
		p = &ingest.Principal{}
	}
	return p.Allows(role.Manage)
}

// principal returns who makes a call; nil where clients need no credentials.
func principal(ctx context.Context) *ingest.Principal {
	p, _ := ctx.Value(ingest.PrincipalKey{}).(*ingest.Principal)
	return p
}

// allowsModel returns an error if a principal that is limited to some models calls a method for another one.
func (s *service) allowsModel(ctx context.Context, name string) error {
	err := principal(ctx).AllowsModel(name)
	s.judge(ctx, err)
	return err
}

// judge calls Options.Judged for a principal that is limited to some models.
func (s *service) judge(ctx context.Context, err error) {
	if s.judged != nil && principal(ctx).Limited() {
		s.judged(err)
	}
}

// mayUse returns an error if a principal that is limited to some models calls a method for another one, or one that is
// not about models that its message names.
func (s *service) mayUse(ctx context.Context, in any) error {
	p := principal(ctx)
	if !p.Limited() {
		return nil
	}
	switch in := in.(type) {
	case *call, *inferencepb.ModelInferRequest: // frame checks it
		return nil
	case *inferencepb.ModelMetadataRequest:
		return s.allowsModel(ctx, in.Name)
	case *inferencepb.ModelReadyRequest:
		return s.allowsModel(ctx, in.Name)
	case *inferencepb.ModelConfigRequest:
		return s.allowsModel(ctx, in.Name)
	case *inferencepb.RepositoryModelLoadRequest:
		return s.allowsModel(ctx, in.ModelName)
	case *inferencepb.RepositoryModelUnloadRequest:
		return s.allowsModel(ctx, in.ModelName)
	case *inferencepb.ModelLoadRequest, *inferencepb.ModelUnloadRequest, *inferencepb.WorkerLoadRequest, *inferencepb.WorkerUnloadRequest:
		return s.allowsModel(ctx, targetOf(in))
	case *inferencepb.ModelListRequest, *inferencepb.HasHardwareRequest, *inferencepb.ServerLiveRequest, *inferencepb.ServerReadyRequest, *inferencepb.ServerMetadataRequest, *inferencepb.RepositoryIndexRequest, *inferencepb.ModelStatisticsRequest, *grpc_health_v1.HealthCheckRequest:
		s.judge(ctx, nil)
		return nil
	}
	err := p.NotWhole()
	s.judge(ctx, err)
	return err
}
