package grpc

import (
	"context"

	"millrace/ingest"
	"millrace/internal/inferencepb"
	"millrace/stream"
)

func (s *service) settings() (ingest.Settings, error) {
	settings, ok := s.gate.Settings()
	if !ok {
		return nil, stream.Errorf(stream.Unsupported, "", "this server has no settings that can be changed")
	}
	return settings, nil
}

// TraceSetting implements the service.
func (s *service) TraceSetting(ctx context.Context,
	in *inferencepb.TraceSettingRequest) (*inferencepb.TraceSettingResponse, error) {
	settings, err := s.settings()
	if err != nil {
		return nil, s.statusError(err)
	}
	if len(in.Settings) > 0 {
		if err := s.mayManage(ctx); err != nil {
			return nil, s.statusError(err)
		}
		change := make(map[string][]string, len(in.Settings))
		for name, v := range in.Settings {
			change[name] = v.GetValue()
		}
		if err := settings.ChangeTraces(in.ModelName, change); err != nil {
			return nil, s.statusError(err)
		}
	}
	all, err := settings.TraceSettings(in.ModelName)
	if err != nil {
		return nil, s.statusError(err)
	}
	out := &inferencepb.TraceSettingResponse{Settings: map[string]*inferencepb.TraceSettingResponse_SettingValue{}}
	for name, v := range all {
		out.Settings[name] = &inferencepb.TraceSettingResponse_SettingValue{Value: v}
	}
	return out, nil
}

// LogSettings implements the service.
func (s *service) LogSettings(ctx context.Context,
	in *inferencepb.LogSettingsRequest) (*inferencepb.LogSettingsResponse, error) {
	settings, err := s.settings()
	if err != nil {
		return nil, s.statusError(err)
	}
	if len(in.Settings) > 0 {
		if err := s.mayManage(ctx); err != nil {
			return nil, s.statusError(err)
		}
		change := make(map[string]any, len(in.Settings))
		for name, v := range in.Settings {
			switch v := v.GetParameterChoice().(type) {
			case *inferencepb.LogSettingsRequest_SettingValue_BoolParam:
				change[name] = v.BoolParam
			case *inferencepb.LogSettingsRequest_SettingValue_Uint32Param:
				change[name] = int64(v.Uint32Param)
			case *inferencepb.LogSettingsRequest_SettingValue_StringParam:
				change[name] = v.StringParam
			default:
				return nil, statusError(stream.Errorf(stream.InvalidArgument, "settings."+name,
					"has no value: set bool_param, uint32_param or string_param"))
			}
		}
		if err := settings.ChangeLog(change); err != nil {
			return nil, s.statusError(err)
		}
	}
	out := &inferencepb.LogSettingsResponse{Settings: map[string]*inferencepb.LogSettingsResponse_SettingValue{}}
	for name, v := range settings.LogSettings() {
		value := &inferencepb.LogSettingsResponse_SettingValue{}
		switch v := v.(type) {
		case bool:
			value.ParameterChoice = &inferencepb.LogSettingsResponse_SettingValue_BoolParam{BoolParam: v}
		case int:
			value.ParameterChoice = &inferencepb.LogSettingsResponse_SettingValue_Uint32Param{
				Uint32Param: uint32(max(v, 0))}
		case string:
			value.ParameterChoice = &inferencepb.LogSettingsResponse_SettingValue_StringParam{StringParam: v}
		}
		out.Settings[name] = value
	}
	return out, nil
}
