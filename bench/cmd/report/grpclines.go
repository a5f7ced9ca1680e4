package main

// grpcLines are about the interceptor on a call that is granted.
func grpcLines() []line {
	return []line{
		beside("grpclimit: a unary call, over a bare interceptor", "grpclimit", "grpc-bare", one, 1000),
	}
}
